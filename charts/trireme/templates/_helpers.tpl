{{- define "trireme.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels of every object; the argument is (dict "root" $ "component" "…"). */}}
{{- define "trireme.labels" -}}
app.kubernetes.io/name: {{ include "trireme.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "trireme.selector" -}}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "trireme.image" -}}
{{- $image := .root.Values.image -}}
{{ printf "%s/%s/%s:%s" $image.registry $image.repository .component (default .root.Chart.AppVersion $image.tag) }}
{{- end -}}

{{/*
The kinds that admission-controller manages, as a YAML list: those of config.integrations.frameworks (Jobs, where it names none, or where
Kueue's place is taken and the list is absent), or all; with "all" true, those it knows. The argument is (dict "root" $ "through" …):
"job" for those with a suspend field of their own (those that config.integrations.kinds declares, too), "owner" for those whose pods are
gated, "pod" for pods themselves. The same tables as the program's; e2e compares the webhooks that are made of them. The schema knows the
names.
*/}}
{{- define "trireme.kinds" -}}
{{- $table := list
  (dict "framework" "batch/job" "group" "batch" "version" "v1" "plural" "jobs")
  (dict "framework" "jobset.x-k8s.io/jobset" "group" "jobset.x-k8s.io" "version" "v1alpha2" "plural" "jobsets")
  (dict "framework" "kubeflow.org/pytorchjob" "group" "kubeflow.org" "version" "v1" "plural" "pytorchjobs")
  (dict "framework" "kubeflow.org/tfjob" "group" "kubeflow.org" "version" "v1" "plural" "tfjobs")
  (dict "framework" "kubeflow.org/xgboostjob" "group" "kubeflow.org" "version" "v1" "plural" "xgboostjobs")
  (dict "framework" "kubeflow.org/paddlejob" "group" "kubeflow.org" "version" "v1" "plural" "paddlejobs")
  (dict "framework" "kubeflow.org/jaxjob" "group" "kubeflow.org" "version" "v1" "plural" "jaxjobs")
  (dict "framework" "kubeflow.org/mpijob" "group" "kubeflow.org" "version" "v2beta1" "plural" "mpijobs")
  (dict "framework" "kubeflow.org/mpijob" "group" "kubeflow.org" "version" "v1" "plural" "mpijobs")
  (dict "framework" "ray.io/rayjob" "group" "ray.io" "version" "v1" "plural" "rayjobs")
  (dict "framework" "ray.io/rayservice" "group" "ray.io" "version" "v1" "plural" "rayservices")
  (dict "framework" "ray.io/raycluster" "group" "ray.io" "version" "v1" "plural" "rayclusters")
  (dict "framework" "trainer.kubeflow.org/trainjob" "group" "trainer.kubeflow.org" "version" "v1alpha1" "plural" "trainjobs")
  (dict "framework" "workload.codeflare.dev/appwrapper" "group" "workload.codeflare.dev" "version" "v1beta2" "plural" "appwrappers")
  (dict "framework" "pod" "group" "" "version" "v1" "plural" "pods" "through" "pod")
  (dict "framework" "deployment" "group" "apps" "version" "v1" "plural" "deployments" "through" "owner")
  (dict "framework" "statefulset" "group" "apps" "version" "v1" "plural" "statefulsets" "through" "owner")
  (dict "framework" "leaderworkerset.x-k8s.io/leaderworkerset" "group" "leaderworkerset.x-k8s.io" "version" "v1" "plural" "leaderworkersets" "through" "owner") -}}
{{- $wanted := (.root.Values.admissionController.config.integrations).frameworks -}}
{{- if or (and (kindIs "slice" $wanted) (empty $wanted)) (and (kindIs "invalid" $wanted) .root.Values.admissionController.takeOver.enabled) -}}
{{- $wanted = list "batch/job" -}}
{{- end -}}
{{- $through := .through -}}
{{- $all := or .all (kindIs "invalid" $wanted) -}}
{{- $kinds := list -}}
{{- range $table -}}
{{- if and (eq $through (default "job" .through)) (or $all (has .framework $wanted)) -}}
{{- $kinds = append $kinds . -}}
{{- end -}}
{{- end -}}
{{- if eq $through "job" -}}
{{- range (.root.Values.admissionController.config.integrations).kinds -}}
{{- $name := splitn "." 3 .name -}}
{{- $plural := default (include "trireme.plural" $name._0) .plural -}}
{{- $kinds = append $kinds (dict "framework" .name "group" $name._2 "version" $name._1 "plural" $plural "role" (printf "%s.%s" $plural $name._2)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $kinds -}}
{{- end -}}

{{/* The resource of a kind, by the rule that Kubernetes' clients go by. */}}
{{- define "trireme.plural" -}}
{{- $kind := lower . -}}
{{- if regexMatch "(s|x|z|ch|sh)$" $kind -}}{{ $kind }}es
{{- else if regexMatch "[^aeiou]y$" $kind -}}{{ trimSuffix "y" $kind }}ies
{{- else -}}{{ $kind }}s
{{- end -}}
{{- end -}}

{{/* A program's configuration file: what the user wrote, and what follows from the release and therefore is not the user's. */}}
{{- define "trireme.config" -}}
{{- $own := dict -}}
{{- $taken := list -}}
{{- if eq .component "admission-controller" -}}
{{- $own = dict "namespace" .root.Release.Namespace -}}
{{- if not .root.Values.gangScheduler.enabled -}}
{{- /* Nobody would schedule the pods. */ -}}
{{- $_ := set $own "schedulerName" "" -}}
{{- end -}}
{{- $taken = list "namespace" "takeOver" -}}
{{- with .root.Values.admissionController.takeOver }}
{{- if .enabled -}}
{{- $_ := set $own "takeOver" (omit . "enabled") -}}
{{- else if not $.root.Values.admissionController.visibility -}}
{{- $_ := set $own "featureGates" (dict "VisibilityOnDemand" false) -}}
{{- end -}}
{{- end -}}
{{- else if eq .component "gang-scheduler" -}}
{{- $own = dict "leaseNamespace" .root.Release.Namespace -}}
{{- $taken = list "leaseNamespace" "adminAddress" -}}
{{- else if .values.config -}}
{{- $own = dict "version" "v1" -}}
{{- end -}}
{{- range $taken -}}
{{- if hasKey $.values.config . -}}
{{- fail (printf "%s.config.%s is set by the chart; leave it out" (camelcase $.component | untitle) .) -}}
{{- end -}}
{{- end -}}
{{- mergeOverwrite $own .values.config | toYaml -}}
{{- end -}}

{{/* A controller's Deployment; the argument is (dict "root" $ "component" "…" "values" … "https" bool). */}}
{{- define "trireme.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "trireme.labels" . | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  {{- if eq (toString (.values.config.leaderElection).leaderElect) "false" }}
  {{- if gt (int .values.replicas) 1 }}
  {{- fail (printf "%s.replicas is %v, and with leaderElection.leaderElect false each would decide for itself; set it to 1" (camelcase .component | untitle) .values.replicas) }}
  {{- end }}
  # There is no Lease, so the next one does not begin before the last has ended.
  strategy: { type: Recreate }
  {{- end }}
  selector:
    matchLabels: {{- include "trireme.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "trireme.labels" . | nindent 8 }}
      annotations:
        checksum/config: {{ include "trireme.config" . | sha256sum }}
    spec:
      serviceAccountName: {{ .component }}
      {{- with .values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if .https }}
      # What it has begun has half a minute to end, after those who still send it reviews have heard that it goes.
      terminationGracePeriodSeconds: 40
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "trireme.selector" . | nindent 14 }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        seccompProfile: { type: RuntimeDefault }
      containers:
        - name: {{ .component }}
          image: {{ include "trireme.image" . }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args:
            - --config=/etc/trireme/config.yaml
            - "--admin-address=[::]:8080"
          env:
            - name: TRIREME_LOG
              value: {{ .values.logFilter | quote }}
            - name: POD_NAME
              valueFrom: { fieldRef: { fieldPath: metadata.name } }
          ports:
            - { name: admin, containerPort: 8080 }
            {{- if .https }}
            - { name: https, containerPort: {{ (.values.config.webhook).port | default 9443 }} }
            {{- end }}
          livenessProbe:
            httpGet: { path: /healthz, port: admin }
          readinessProbe:
            httpGet: { path: /readyz, port: admin }
          {{- if .https }}
          # API servers and proxies hear within this time that it takes no more connections.
          lifecycle:
            preStop: { sleep: { seconds: 5 } }
          {{- end }}
          resources: {{- toYaml .values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: { drop: [ALL] }
          volumeMounts:
            - { name: config, mountPath: /etc/trireme, readOnly: true }
      volumes:
        - name: config
          configMap: { name: {{ .component }} }
{{- end -}}

{{/* What every component has: account, configuration, the right to lead. */}}
{{- define "trireme.common" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "trireme.labels" . | nindent 4 }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "trireme.labels" . | nindent 4 }}
data:
  config.yaml: |
    {{- include "trireme.config" . | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: trireme-{{ .component }}
  labels: {{- include "trireme.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: trireme-{{ .component }}
subjects:
  - kind: ServiceAccount
    name: {{ .component }}
    namespace: {{ .root.Release.Namespace }}
{{- if .leads }}
{{- $leases := include "trireme.leaseNamespace" . }}
{{- if ne $leases .root.Release.Namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .component }}-lease
  namespace: {{ $leases }}
  labels: {{- include "trireme.labels" . | nindent 4 }}
rules:
  {{- include "trireme.lease" . | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .component }}-lease
  namespace: {{ $leases }}
  labels: {{- include "trireme.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .component }}-lease
subjects:
  - kind: ServiceAccount
    name: {{ .component }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "trireme.labels" . | nindent 4 }}
rules:
  {{- if eq $leases .root.Release.Namespace }}
  {{- include "trireme.lease" . | nindent 2 }}
  {{- end }}
  {{- if .https }}
  - apiGroups: [""]
    resources: [secrets]
    verbs: [create]
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: [{{ .component }}-tls]
    verbs: [get, patch]
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "trireme.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .component }}
subjects:
  - kind: ServiceAccount
    name: {{ .component }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}
{{- if .values.podDisruptionBudget }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "trireme.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "trireme.selector" . | nindent 6 }}
{{- end }}
{{- if .root.Values.metrics.podMonitor }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "trireme.labels" . | nindent 4 }}
spec:
  podMetricsEndpoints:
    - port: admin
  selector:
    matchLabels: {{- include "trireme.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{- /* Where a program's lease is: Kueue's namespace, where Kueue's place is taken. */}}
{{- define "trireme.leaseNamespace" -}}
{{- $kueues := ternary (.values.takeOver).namespace "" ((.values.takeOver).enabled | default false) -}}
{{- (.values.config.leaderElection).resourceNamespace | default $kueues | default .root.Release.Namespace -}}
{{- end }}

{{- /* What a program may do with its lease. */}}
{{- define "trireme.lease" -}}
{{- $usual := ternary "c1f6bfd2.kueue.x-k8s.io" (.values.config.leaseName | default .component) ((.values.takeOver).enabled | default false) }}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ (.values.config.leaderElection).resourceName | default $usual | quote }}]
  verbs: [get, patch]
{{- end }}

{{- /* Whether the visibility API is served and wanted; empty if not. */}}
{{- define "trireme.visibility" -}}
{{- with .Values.admissionController -}}
{{- if and .enabled .visibility (ne (toString (.config.featureGates).VisibilityOnDemand) "false") }}true{{ end -}}
{{- end -}}
{{- end }}
