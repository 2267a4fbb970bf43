//! Lists: order, pages, selectors.

use anyhow::{Result, ensure};

use super::shapes::{CONFIGMAPS, NODES, PODS, labelled, node, pod};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["lists", OnlyTheApi:
    an_empty_list_is_a_list,
    items_come_in_name_order,
    pages_follow_the_continue_token,
    pages_show_the_state_of_the_first_page,
    a_limit_above_the_count_gives_no_token,
    a_made_up_continue_token_is_bad_request,
    pages_count_what_remains,
    selectors_by_equality,
    selectors_by_set,
    selectors_by_existence,
    selectors_together,
    a_malformed_label_selector_is_bad_request,
    field_selector_by_name,
    field_selector_of_pods_by_node_and_phase,
    an_unknown_field_selector_is_bad_request,
    list_at_version_zero_answers,
    list_at_an_exact_version_shows_the_past,
    list_at_a_version_from_the_future_is_refused,
    items_of_a_list_carry_no_kind,
    selectors_apply_to_pages,
];

async fn five(api: &Harness) -> Result<()> {
    for name in ["c", "a", "e", "b", "d"] {
        api.post(CONFIGMAPS, labelled(name, "five=yes")).await?.is(201)?;
    }
    Ok(())
}

const FIVE: &str = "/api/v1/namespaces/{ns}/configmaps?labelSelector=five%3Dyes";

async fn an_empty_list_is_a_list(api: Harness) -> Result<()> {
    let list = api.get(&format!("{CONFIGMAPS}?labelSelector=none")).await?.is(200)?;
    ensure!(
        list.at("/items").as_array().is_some_and(Vec::is_empty),
        "items is [] and not null: {}",
        list.text
    );
    list.filled("/metadata/resourceVersion")?;
    Ok(())
}

async fn items_come_in_name_order(api: Harness) -> Result<()> {
    five(&api).await?;
    api.get(FIVE).await?.lists(&["a", "b", "c", "d", "e"])?;
    Ok(())
}

async fn pages_follow_the_continue_token(api: Harness) -> Result<()> {
    for name in ["a", "b", "c", "d", "e"] {
        api.post(PODS, pod(name)).await?.is(201)?;
    }
    let first = api.get(&format!("{PODS}?limit=2")).await?.is(200)?.lists(&["a", "b"])?;
    let next = format!("{PODS}?limit=2&continue={}", first.string("/metadata/continue")?);
    let second = api.get(&next).await?.is(200)?.lists(&["c", "d"])?;
    let next = format!("{PODS}?limit=2&continue={}", second.string("/metadata/continue")?);
    let third = api.get(&next).await?.is(200)?.lists(&["e"])?;
    ensure!(third.at("/metadata/continue").as_str().unwrap_or_default().is_empty(), "{}", third.text);
    Ok(())
}

async fn pages_show_the_state_of_the_first_page(api: Harness) -> Result<()> {
    for name in ["a", "b", "c"] {
        api.post(PODS, pod(name)).await?.is(201)?;
    }
    let first = api.get(&format!("{PODS}?limit=2")).await?.is(200)?;
    api.post(PODS, pod("d")).await?.is(201)?;
    let next = format!("{PODS}?limit=9&continue={}", first.string("/metadata/continue")?);
    let second = api.get(&next).await?.is(200)?.lists(&["c"])?;
    second.has("/metadata/resourceVersion", first.version()?)?;
    Ok(())
}

async fn a_limit_above_the_count_gives_no_token(api: Harness) -> Result<()> {
    five(&api).await?;
    let list = api.get(&format!("{FIVE}&limit=500")).await?.is(200)?;
    ensure!(list.at("/metadata/continue").as_str().unwrap_or_default().is_empty(), "{}", list.text);
    Ok(())
}

async fn a_made_up_continue_token_is_bad_request(api: Harness) -> Result<()> {
    api.get(&format!("{CONFIGMAPS}?limit=2&continue=nonsense")).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn pages_count_what_remains(api: Harness) -> Result<()> {
    for name in ["a", "b", "c"] {
        api.post(PODS, pod(name)).await?.is(201)?;
    }
    api.get(&format!("{PODS}?limit=2")).await?.is(200)?.has("/metadata/remainingItemCount", 1)?;
    Ok(())
}

async fn selectors_by_equality(api: Harness) -> Result<()> {
    for (name, labels) in [("a", "t=1"), ("b", "t=2"), ("c", "u=1")] {
        api.post(CONFIGMAPS, labelled(name, labels)).await?.is(201)?;
    }
    api.get(&format!("{CONFIGMAPS}?labelSelector=t%3D1")).await?.lists(&["a"])?;
    api.get(&format!("{CONFIGMAPS}?labelSelector=t%3D%3D2")).await?.lists(&["b"])?;
    let list = api.get(&format!("{CONFIGMAPS}?labelSelector=t!%3D1")).await?.is(200)?.names();
    ensure!(
        !list.contains(&"a".into()) && list.contains(&"b".into()) && list.contains(&"c".into()),
        "absent counts as unequal: {list:?}"
    );
    Ok(())
}

async fn selectors_by_set(api: Harness) -> Result<()> {
    for (name, labels) in [("a", "t=1"), ("b", "t=2"), ("c", "t=3"), ("d", "u=1")] {
        api.post(CONFIGMAPS, labelled(name, labels)).await?.is(201)?;
    }
    api.get(&format!("{CONFIGMAPS}?labelSelector=t+in+(1,3)")).await?.lists(&["a", "c"])?;
    let list = api.get(&format!("{CONFIGMAPS}?labelSelector=t+notin+(1,3)")).await?.is(200)?.names();
    ensure!(
        list.contains(&"b".into()) && list.contains(&"d".into()) && !list.contains(&"a".into()),
        "{list:?}"
    );
    Ok(())
}

async fn selectors_by_existence(api: Harness) -> Result<()> {
    for (name, labels) in [("a", "t=1"), ("b", "u=1")] {
        api.post(CONFIGMAPS, labelled(name, labels)).await?.is(201)?;
    }
    api.get(&format!("{CONFIGMAPS}?labelSelector=t")).await?.lists(&["a"])?;
    api.get(&format!("{CONFIGMAPS}?labelSelector=!t,u")).await?.lists(&["b"])?;
    Ok(())
}

async fn selectors_together(api: Harness) -> Result<()> {
    for (name, labels) in [("a", "t=1,u=1"), ("b", "t=1,u=2")] {
        api.post(CONFIGMAPS, labelled(name, labels)).await?.is(201)?;
    }
    api.get(&format!("{CONFIGMAPS}?labelSelector=t%3D1,u+in+(2)")).await?.lists(&["b"])?;
    let path = format!("{CONFIGMAPS}?labelSelector=t%3D1&fieldSelector=metadata.name%3Da");
    api.get(&path).await?.lists(&["a"])?;
    Ok(())
}

async fn a_malformed_label_selector_is_bad_request(api: Harness) -> Result<()> {
    for selector in ["t+in", "t%3D%3D%3D1", "t+in+(", ",,"] {
        api.get(&format!("{CONFIGMAPS}?labelSelector={selector}")).await?.refused(400, "BadRequest")?;
    }
    Ok(())
}

async fn field_selector_by_name(api: Harness) -> Result<()> {
    five(&api).await?;
    api.get(&format!("{CONFIGMAPS}?fieldSelector=metadata.name%3Db")).await?.lists(&["b"])?;
    let list = api.get(&format!("{FIVE}&fieldSelector=metadata.name!%3Db")).await?;
    list.lists(&["a", "c", "d", "e"])?;
    Ok(())
}

async fn field_selector_of_pods_by_node_and_phase(api: Harness) -> Result<()> {
    api.post(PODS, pod("free")).await?.is(201)?;
    let mut bound = pod("bound");
    bound["spec"]["nodeName"] = serde_json::json!("nobody-{u}");
    bound["spec"]["schedulerName"] = serde_json::json!("mine");
    api.post(PODS, bound).await?.is(201)?;
    api.get(&format!("{PODS}?fieldSelector=spec.nodeName%3Dnobody-{{u}}")).await?.lists(&["bound"])?;
    api.get(&format!("{PODS}?fieldSelector=spec.nodeName%3D")).await?.lists(&["free"])?;
    api.get(&format!("{PODS}?fieldSelector=spec.schedulerName%3Dmine")).await?.lists(&["bound"])?;
    api.get(&format!("{PODS}?fieldSelector=status.phase%3DPending,spec.nodeName!%3D"))
        .await?
        .lists(&["bound"])?;
    api.get(&format!("{PODS}?fieldSelector=status.phase%3DRunning")).await?.lists(&[])?;
    Ok(())
}

async fn an_unknown_field_selector_is_bad_request(api: Harness) -> Result<()> {
    api.get(&format!("{PODS}?fieldSelector=spec.nonsense%3D1")).await?.refused(400, "BadRequest")?;
    api.get(&format!("{CONFIGMAPS}?fieldSelector=data.a%3D1")).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn list_at_version_zero_answers(api: Harness) -> Result<()> {
    let list = api.get(&format!("{CONFIGMAPS}?resourceVersion=0")).await?.is(200)?;
    list.has("/kind", "ConfigMapList")?.filled("/metadata/resourceVersion")?;
    Ok(())
}

async fn list_at_an_exact_version_shows_the_past(api: Harness) -> Result<()> {
    let version = api.post(CONFIGMAPS, labelled("a", "t=1")).await?.is(201)?.version()?;
    api.post(CONFIGMAPS, labelled("b", "t=1")).await?.is(201)?;
    let path = format!("{CONFIGMAPS}?labelSelector=t&resourceVersion={version}&resourceVersionMatch=Exact");
    api.get(&path).await?.is(200)?.lists(&["a"])?.has("/metadata/resourceVersion", version)?;
    Ok(())
}

async fn list_at_a_version_from_the_future_is_refused(api: Harness) -> Result<()> {
    let path = format!("{CONFIGMAPS}?resourceVersion=999999999&resourceVersionMatch=NotOlderThan");
    let refused = api.get(&path).await?.refused(504, "Timeout")?;
    refused.has("/details/causes/0/reason", "ResourceVersionTooLarge")?;
    Ok(())
}

async fn items_of_a_list_carry_no_kind(api: Harness) -> Result<()> {
    api.post(NODES, node("list-{u}")).await?.is(201)?;
    let list = api.get(&format!("{NODES}?fieldSelector=metadata.name%3Dlist-{{u}}")).await?.is(200)?;
    list.has("/kind", "NodeList")?.lacks("/items/0/kind")?.lacks("/items/0/apiVersion")?;
    api.delete("/api/v1/nodes/list-{u}").await?.ok()?;
    Ok(())
}

async fn selectors_apply_to_pages(api: Harness) -> Result<()> {
    for (name, labels) in [("a", "t=1"), ("b", "u=1"), ("c", "t=1"), ("d", "t=1")] {
        api.post(CONFIGMAPS, labelled(name, labels)).await?.is(201)?;
    }
    let first =
        api.get(&format!("{CONFIGMAPS}?labelSelector=t&limit=2")).await?.is(200)?.lists(&["a", "c"])?;
    let next =
        format!("{CONFIGMAPS}?labelSelector=t&limit=2&continue={}", first.string("/metadata/continue")?);
    api.get(&next).await?.is(200)?.lists(&["d"])?;
    Ok(())
}
