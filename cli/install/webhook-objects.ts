import type { KubeObject } from '#contracts'
import { isConverted, nameOf, WebhookProbe, webhookResources } from '#process/webhooks/probe'
import type { Reconciler, Resource } from '#sdk'
import { policyNameOf, SYSTEM_NAMESPACE } from '#spec'
import { CONFIGURATIONS } from './installed-objects.ts'
import { LABELS } from './rbac.ts'
import { WEBHOOK_SECRETS, WEBHOOKS } from './webhook-certificates.ts'

interface WebhookImage {
  /** An image with the functions, and with the command `fairlead` as entrypoint. */
  image: string
  /** The paths of the functions in the image. */
  modules: readonly string[]
  /** Built-in functions, by the names that `--builtin` takes. */
  builtin: readonly string[]
}

/** The account of the CronJob, which loads no functions. The pods of the webhook have none. */
const KEEPER = `${WEBHOOKS}-keeper`
const [PORT, HEALTH] = [10_250, 8080]
const TLS = '/etc/webhook-tls'

/**
 * Returns what runs the webhook of the functions: a Deployment without rights, and a CronJob that renews its certificates
 * and proves each week that the API server reaches it. Empty without a resource with conversions or `validate`.
 */
export function webhookObjects(functions: readonly Reconciler[], image: WebhookImage): KubeObject[] {
  const resources = webhookResources(functions)
  return resources.length === 0 ? [] : [...serving(image), ...keeping(image), ...keeperRbac(resources)]
}

const labelsOf = (name: string) => ({ ...LABELS, 'app.kubernetes.io/name': name.replace('fairlead-', '') })

const named = (name: string) => ({ name, namespace: SYSTEM_NAMESPACE, labels: labelsOf(name) })

const selected = (name: string) => ({ matchLabels: labelsOf(name) })

const functionArguments = ({ modules, builtin }: WebhookImage): string[] => [
  ...modules.flatMap((module) => ['-f', module]),
  ...(builtin.length > 0 ? ['--builtin', builtin.join(',')] : []),
]

const POD = {
  enableServiceLinks: false,
  securityContext: {
    runAsNonRoot: true,
    runAsUser: 65_532,
    runAsGroup: 65_532,
    fsGroup: 65_532,
    seccompProfile: { type: 'RuntimeDefault' },
  },
}

const containerOf = (name: string, { image }: WebhookImage, args: string[]) => ({
  name,
  image,
  args,
  securityContext: {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ['ALL'] },
  },
})

const serving = (image: WebhookImage): KubeObject[] => [
  {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: named(WEBHOOKS),
    spec: {
      replicas: 2,
      strategy: { rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } },
      selector: selected(WEBHOOKS),
      template: {
        metadata: {
          labels: labelsOf(WEBHOOKS),
          annotations: { 'prometheus.io/scrape': 'true', 'prometheus.io/port': String(HEALTH) },
        },
        spec: {
          ...POD,
          automountServiceAccountToken: false,
          // Serves on for 15 s, then has 5 s for its last answers.
          terminationGracePeriodSeconds: 30,
          topologySpreadConstraints: [
            {
              maxSkew: 1,
              topologyKey: 'kubernetes.io/hostname',
              whenUnsatisfiable: 'ScheduleAnyway',
              labelSelector: selected(WEBHOOKS),
            },
          ],
          containers: [
            {
              ...containerOf('webhooks', image, [
                'admit',
                ...functionArguments(image),
                '--tls',
                TLS,
                '--listen',
                `:${HEALTH}`,
              ]),
              ports: [
                { name: 'webhooks', containerPort: PORT },
                { name: 'http', containerPort: HEALTH },
              ],
              startupProbe: { httpGet: { path: '/healthz', port: 'http' }, periodSeconds: 1, failureThreshold: 60 },
              livenessProbe: { httpGet: { path: '/healthz', port: 'http' }, timeoutSeconds: 5 },
              readinessProbe: { httpGet: { path: '/readyz', port: 'http' }, periodSeconds: 3, timeoutSeconds: 5 },
              resources: { requests: { cpu: '100m', memory: '128Mi' }, limits: { memory: '1Gi' } },
              volumeMounts: [{ name: 'tls', mountPath: TLS, readOnly: true }],
            },
          ],
          volumes: [{ name: 'tls', secret: { secretName: WEBHOOK_SECRETS.leaf, defaultMode: 0o440 } }],
        },
      },
    },
  },
  {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: named(WEBHOOKS),
    spec: { selector: selected(WEBHOOKS).matchLabels, ports: [{ name: 'https', port: 443, targetPort: 'webhooks' }] },
  },
  {
    apiVersion: 'policy/v1',
    kind: 'PodDisruptionBudget',
    metadata: named(WEBHOOKS),
    spec: { maxUnavailable: 1, selector: selected(WEBHOOKS) },
  },
  {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: named(WEBHOOKS),
    // The API server has no label, and on most clusters an address outside of the pods' network.
    spec: {
      podSelector: selected(WEBHOOKS),
      policyTypes: ['Ingress', 'Egress'],
      ingress: [PORT, HEALTH].map((port) => ({ ports: [{ protocol: 'TCP', port }] })),
    },
  },
]

const keeping = (image: WebhookImage): KubeObject[] => [
  {
    apiVersion: 'batch/v1',
    kind: 'CronJob',
    metadata: named(KEEPER),
    spec: {
      // Certificates are renewed 30 days before they end.
      schedule: '17 3 * * 1',
      concurrencyPolicy: 'Forbid',
      jobTemplate: { spec: keeperJob(image) },
    },
  },
  {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: named(KEEPER),
    spec: {
      podSelector: selected(KEEPER),
      policyTypes: ['Ingress', 'Egress'],
      egress: [{ ports: [443, 6443].map((port) => ({ protocol: 'TCP', port })) }],
    },
  },
]

const keeperJob = (image: WebhookImage) => ({
  backoffLimit: 4,
  template: {
    metadata: { labels: labelsOf(KEEPER) },
    spec: {
      ...POD,
      restartPolicy: 'Never',
      serviceAccountName: KEEPER,
      containers: [
        {
          ...containerOf('keeper', image, ['install', '--only-conversions']),
          resources: { requests: { cpu: '50m', memory: '128Mi' }, limits: { memory: '256Mi' } },
        },
      ],
    },
  },
})

const RBAC = 'rbac.authorization.k8s.io'

/** The CronJob changes Secrets and definitions that are there. To create them takes an installation. */
function keeperRbac(resources: readonly Resource[]): KubeObject[] {
  const converted = resources.filter(isConverted)
  const validated = resources.filter((one) => one.validatingWebhook !== undefined)
  const names = [WebhookProbe, ...converted].map(nameOf)
  const secrets = Object.values(WEBHOOK_SECRETS)
  const definitions = { apiGroups: ['apiextensions.k8s.io'], resources: ['customresourcedefinitions'] }
  const { group, resource } = CONFIGURATIONS
  const configurations = { apiGroups: [group], resources: [resource] }
  const probes = { apiGroups: [WebhookProbe.group], resources: [WebhookProbe.resource], verbs: ['create'] }
  const subjects = [{ kind: 'ServiceAccount', name: KEEPER, namespace: SYSTEM_NAMESPACE }]
  return [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: named(KEEPER) },
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'Role',
      metadata: named(KEEPER),
      rules: [
        { apiGroups: [''], resources: ['secrets'], resourceNames: secrets, verbs: ['get', 'update'] },
        { apiGroups: [''], resources: ['services'], resourceNames: [WEBHOOKS], verbs: ['get'] },
      ],
    },
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'RoleBinding',
      metadata: named(KEEPER),
      roleRef: { apiGroup: RBAC, kind: 'Role', name: KEEPER },
      subjects,
    },
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'ClusterRole',
      metadata: { name: KEEPER, labels: LABELS },
      rules: [
        { ...definitions, verbs: ['list'] },
        { ...definitions, resourceNames: names, verbs: ['patch'] },
        { ...configurations, verbs: ['list'] },
        // Without names, a rule is for all.
        ...(validated.length > 0
          ? [{ ...configurations, resourceNames: validated.map(policyNameOf), verbs: ['patch'] }]
          : []),
        probes,
      ],
    },
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'ClusterRoleBinding',
      metadata: { name: KEEPER, labels: LABELS },
      roleRef: { apiGroup: RBAC, kind: 'ClusterRole', name: KEEPER },
      subjects,
    },
  ]
}
