import type { KubeObject, ResourceRef } from '#contracts'
import {
  ACTS,
  crossesNamespaces,
  keepsFinalizer,
  keepsStatus,
  type OwnedResource,
  RECONCILERS,
  type ReconcilerSpec,
  reconcilerLabel,
  SYSTEM_NAMESPACE,
} from '#spec'

/** The account of a process that is both bridge and dispatcher. Other processes have the account of their part. */
export const PROCESS_ACCOUNT = 'fairlead'
const BRIDGE = 'fairlead-bridge'
const DISPATCHER = 'fairlead-dispatcher'
const OWN_POD = 'fairlead-own-pod'

const AGGREGATE = {
  bridge: 'fairlead.dev/aggregate-to-bridge',
  dispatcher: 'fairlead.dev/aggregate-to-dispatcher',
  console: 'fairlead.dev/aggregate-to-console',
}

export interface RbacInput {
  metadata: { name: string }
  spec: Pick<
    ReconcilerSpec,
    'for' | 'owns' | 'related' | 'patches' | 'acts' | 'finalize' | 'formerFinalizers' | 'writes' | 'binds'
  > &
    Partial<Pick<ReconcilerSpec, 'serviceAccount' | 'external' | 'invoke'>>
}

/**
 * Returns the basic RBAC of bridges and dispatchers. Each function adds the permissions that it needs of them, by
 * aggregation.
 */
export function platformRbac(): KubeObject[] {
  const accounts = [BRIDGE, DISPATCHER, PROCESS_ACCOUNT]
  return [
    { apiVersion: 'v1', kind: 'Namespace', metadata: { name: SYSTEM_NAMESPACE, labels: { ...LABELS, ...RESTRICTED } } },
    ...accounts.map((name) => serviceAccount(name, SYSTEM_NAMESPACE)),
    clusterRole('fairlead-common', [
      { ...refRule(RECONCILERS), verbs: ['list', 'watch'] },
      { ...refRule(RECONCILERS, '/status'), verbs: ['patch'] },
      // The UID of kube-system identifies the cluster in events.
      { apiGroups: [''], resources: ['namespaces'], resourceNames: ['kube-system'], verbs: ['get'] },
    ]),
    // Bound in this namespace only: the dispatcher reads the digest of its own image.
    clusterRole(OWN_POD, [{ apiGroups: [''], resources: ['pods'], verbs: ['get'] }], {
      [AGGREGATE.dispatcher]: 'true',
    }),
    aggregated(BRIDGE, AGGREGATE.bridge),
    aggregated(DISPATCHER, AGGREGATE.dispatcher),
    clusterBinding('fairlead-common', accounts.map(inSystemNamespace)),
    clusterBinding(BRIDGE, [BRIDGE, PROCESS_ACCOUNT].map(inSystemNamespace)),
    // Bound in this namespace only: a service account with the same name in another namespace stays out of reach.
    binding(DISPATCHER, SYSTEM_NAMESPACE, DISPATCHERS),
  ]
}

/**
 * Returns the RBAC of one function, with the label by which a later installation finds what it no longer needs: its account with the permissions to write its declared kinds, and the permissions
 * that it adds to those of bridge, dispatcher and console. `for.namespaces` restricts its writes to these namespaces;
 * beyond them, it may read only related kinds that may be in another namespace.
 */
export function functionRbac({ metadata: { name }, spec }: RbacInput): KubeObject[] {
  refuseTaken(name)
  return marked(name, permissionsOf(name, spec))
}

/**
 * Returns the RBAC of a function that a team installs: the same account and the same permissions to write, all of it in
 * the namespaces of the function and of its account. The platform grants what bridges and the console need, by the
 * value `teams` of the chart.
 */
export function teamRbac({ metadata: { name }, spec }: RbacInput): KubeObject[] {
  refuseTaken(name)
  const { serviceAccount: account, for: primary } = spec
  if (account === undefined) return []
  const role = `fairlead-${name}`
  // A Role allows nothing of what is outside of namespaces.
  const rules = writeRules(spec).filter(({ resources }) => !resources.includes(DEFINITIONS))
  return marked(name, [
    serviceAccount(account.name, account.namespace),
    ...(primary.namespaces ?? []).flatMap((namespace) => inNamespace(role, namespace, rules, [account])),
    ...inNamespace(`${role}-impersonate`, account.namespace, [impersonation(account)], DISPATCHERS),
    ...configRbac(name, spec),
  ])
}

const marked = (name: string, objects: readonly KubeObject[]): KubeObject[] =>
  objects.map((object) => {
    // Functions may share an account that a declaration names, so the account has no label of one of them.
    if (object.kind === 'ServiceAccount' && object.metadata.name !== `fairlead-${name}`) return object
    const { metadata } = object
    return { ...object, metadata: { ...metadata, labels: { ...metadata.labels, ...reconcilerLabel(name) } } }
  })

function permissionsOf(name: string, spec: RbacInput['spec']): KubeObject[] {
  const { serviceAccount: account } = spec
  const role = `fairlead-${name}`
  const { patches = [], acts = [] } = spec
  const watched = [spec.for, ...spec.owns, ...spec.related, ...patches]
  const beyond = [
    ...spec.related.filter(crossesNamespaces).map((ref) => ruleOf(ref, ['get'])),
    ...patchRules(patches.filter(({ within }) => within === 'Cluster')),
    ...actRules(acts.filter(({ within }) => within === 'Cluster')),
  ]
  const bridge = clusterRole(`${role}-watch`, merged(watched.map((ref) => ruleOf(ref, ['list', 'watch']))), {
    [AGGREGATE.bridge]: 'true',
  })
  const inspect = clusterRole(`${role}-inspect`, inspectRules(watched), { [AGGREGATE.console]: 'true' })
  if (account === undefined) return [bridge, inspect]
  const { namespaces } = spec.for
  const isAtHome = account.namespace === SYSTEM_NAMESPACE
  return [
    ...(isAtHome ? [serviceAccount(account.name, account.namespace)] : []),
    clusterRole(role, writeRules(spec)),
    ...(namespaces?.map((namespace) => binding(role, namespace, [account])) ?? [clusterBinding(role, [account])]),
    ...(namespaces ? beyondNamespaces(`${role}-related`, beyond, account) : []),
    bridge,
    inspect,
    clusterRole(
      `${role}-impersonate`,
      [impersonation(account)],
      isAtHome ? { [AGGREGATE.dispatcher]: 'true' } : undefined,
    ),
    ...(isAtHome ? [] : [binding(`${role}-impersonate`, account.namespace, DISPATCHERS)]),
    ...configRbac(name, spec),
  ]
}

/**
 * Returns the rights to read the configuration of a function that a dispatcher runs: each Secret and ConfigMap by its
 * name, and tokens of the account itself. The pod of a function over HTTP gets its values from the kubelet, so that
 * nobody needs rights.
 */
function configRbac(name: string, { external, invoke, serviceAccount: account }: RbacInput['spec']): KubeObject[] {
  const values = external?.config ?? []
  if (values.length === 0 || account === undefined || invoke?.http !== undefined) return []
  const named = (resource: string, verb: string, names: (string | undefined)[]): Rule[] => {
    const resourceNames = [...new Set(names.filter((one) => one !== undefined))]
    return resourceNames.length === 0 ? [] : [{ apiGroups: [''], resources: [resource], resourceNames, verbs: [verb] }]
  }
  const tokens = values.map(({ audience }) => (audience === undefined ? undefined : account.name))
  const rules = [
    ...named(
      'secrets',
      'get',
      values.map(({ secret }) => secret?.name),
    ),
    ...named(
      'configmaps',
      'get',
      values.map(({ configMap }) => configMap?.name),
    ),
    ...named('serviceaccounts/token', 'create', tokens),
  ]
  return inNamespace(configRoleOf(name), account.namespace, rules, [account])
}

/** The name of the Role and the RoleBinding for the configuration of a function. */
export const configRoleOf = (name: string): string => `fairlead-${name}-external`

const inNamespace = (name: string, namespace: string, rules: Rule[], accounts: Account[]): KubeObject[] => [
  { apiVersion: `${RBAC}/v1`, kind: 'Role', metadata: { name, namespace, labels: LABELS }, rules },
  binding(name, namespace, accounts, 'Role'),
]

function beyondNamespaces(role: string, rules: Rule[], account: Account): KubeObject[] {
  return rules.length === 0 ? [] : [clusterRole(role, merged(rules)), clusterBinding(role, [account])]
}

const DEFINITIONS = 'customresourcedefinitions'

/**
 * Returns the rules for fields of others. A live object shows whether the account's manager has fields of it, and its
 * definition whether it may exist in a version that is not served.
 */
const patchRules = (patches: NonNullable<RbacInput['spec']['patches']>): Rule[] =>
  patches.flatMap((ref) => [
    ruleOf(ref, ['get']),
    { ...refRule(ref, ref.status === true ? '/status' : ''), verbs: ['patch'] },
    ...(ref.group.includes('.')
      ? [
          {
            apiGroups: ['apiextensions.k8s.io'],
            resources: [DEFINITIONS],
            resourceNames: [`${ref.resource}.${ref.group}`],
            verbs: ['get'],
          },
        ]
      : []),
  ])

/** The API server asks for the verb `approve` on the signer of a CertificateSigningRequest, for a denial too. */
const actRules = (acts: NonNullable<RbacInput['spec']['acts']>): Rule[] =>
  acts.flatMap(({ act, signers, ...ref }) => [
    { ...refRule(ref, `/${ACTS[act].subresource}`), verbs: [ACTS[act].verb] },
    ...(signers === undefined
      ? []
      : [{ apiGroups: [ref.group], resources: ['signers'], resourceNames: signers, verbs: ['approve'] }]),
  ])

/** Leaves out Secrets: the console does not show them, so its account cannot read them. */
const inspectRules = (kinds: readonly Pick<ResourceRef, 'group' | 'resource'>[]): Rule[] =>
  merged(
    kinds
      .filter(({ group, resource }) => group !== '' || resource !== 'secrets')
      .map((ref) => ruleOf(ref, ['get', 'list'])),
  )

/** The names of the roles and bindings of a function. */
export const roleNamesOf = (name: string): string[] =>
  ['', '-watch', '-inspect', '-related', '-impersonate', '-external'].map((part) => `fairlead-${name}${part}`)

const TAKEN =
  /^(?:bridge|dispatcher|common|own-pod|webhooks(?:-keeper)?|console(?:-(?:own|events|reader|operator))?)$|-(?:watch|inspect|related|impersonate|external)$/

/**
 * Rejects names that would give the function the permissions of the bridge, the dispatcher, the console or another
 * function, or remove theirs.
 */
function refuseTaken(name: string): void {
  if (TAKEN.test(name))
    throw new Error(`no function can be called ${name}: fairlead-${name} is, or may be, a role of something else`)
}

/** Reads are needed after a conflict, and for kinds of which only references are sent. */
function writeRules(spec: RbacInput['spec']): Rule[] {
  const { for: primary, owns, related, patches = [], acts = [] } = spec
  const { writes = [], binds = [] } = spec
  const removesFinalizers = keepsFinalizer(spec) || spec.formerFinalizers !== undefined
  const rules = merged([
    ruleOf(primary, ['get']),
    ...(removesFinalizers || writes.includes('Metadata') ? [ruleOf(primary, ['patch'])] : []),
    ...(writes.includes('Deletion') ? [ruleOf(primary, ['delete'])] : []),
    ...(keepsStatus({ for: primary }) ? [{ ...refRule(primary, '/status'), verbs: ['patch'] }] : []),
    // An owner reference with blockOwnerDeletion needs this permission if the API server enforces it
    // (OwnerReferencesPermissionEnforcement).
    ...(owns.length > 0 ? [{ ...refRule(primary, '/finalizers'), verbs: ['update'] }] : []),
    ...owns.map((owned) => ruleOf(owned, OWNED_VERBS[owned.strategy])),
    ...related.map((other) => ruleOf(other, ['get'])),
    ...patchRules(patches),
    ...actRules(acts),
    { apiGroups: ['events.k8s.io'], resources: ['events'], verbs: ['create', 'get', 'patch'] },
  ])
  return [...rules, ...bindRules(binds)]
}

/**
 * Allows to bind these roles: the API server otherwise rejects a binding of a role with permissions that its creator
 * lacks.
 */
const bindRules = (binds: NonNullable<RbacInput['spec']['binds']>): Rule[] =>
  [...Map.groupBy(binds, ({ kind }) => kind)].map(([kind, roles]) => ({
    apiGroups: [RBAC],
    resources: [kind === 'ClusterRole' ? 'clusterroles' : 'roles'],
    resourceNames: roles.map(({ name }) => name),
    verbs: ['bind'],
  }))

const OWNED_VERBS: Record<OwnedResource['strategy'], string[]> = {
  Apply: ['create', 'delete', 'get', 'patch'],
  CreateOnly: ['create', 'delete', 'get'],
  Recreate: ['create', 'delete', 'get'],
}

const refRule = ({ group, resource }: Pick<ResourceRef, 'group' | 'resource'>, subresource = '') => ({
  apiGroups: [group],
  resources: [resource + subresource],
})

const ruleOf = (ref: Pick<ResourceRef, 'group' | 'resource'>, verbs: string[]): Rule => ({ ...refRule(ref), verbs })

/** Merges rules into one per resource, with all their verbs. */
const merged = (rules: Rule[]): Rule[] =>
  [
    ...Map.groupBy(
      rules,
      ({ apiGroups, resources, resourceNames = [] }) => `${apiGroups[0]}/${resources[0]}/${resourceNames.join()}`,
    ).values(),
  ].map((same) => ({
    ...(same[0] as Rule),
    verbs: [...new Set(same.flatMap(({ verbs }) => verbs))].sort(),
  }))

interface Rule {
  apiGroups: string[]
  resources: string[]
  verbs: string[]
  resourceNames?: string[]
}

interface Account {
  name: string
  namespace: string
}

/**
 * The label of all installed objects. An object without any applied field would be written again by a repeated
 * server-side apply.
 */
export const LABELS = { 'app.kubernetes.io/part-of': 'fairlead' }

/**
 * Enforces the restricted Pod Security Standard in the namespace, and warns about workloads whose pods would violate
 * it.
 */
const RESTRICTED = {
  'pod-security.kubernetes.io/enforce': 'restricted',
  'pod-security.kubernetes.io/warn': 'restricted',
}

const RBAC = 'rbac.authorization.k8s.io'
const inSystemNamespace = (name: string): Account => ({ name, namespace: SYSTEM_NAMESPACE })
/** The accounts that act as those of functions. */
const DISPATCHERS = [DISPATCHER, PROCESS_ACCOUNT].map(inSystemNamespace)

const impersonation = ({ name }: Account): Rule => ({
  apiGroups: [''],
  resources: ['serviceaccounts'],
  resourceNames: [name],
  verbs: ['impersonate'],
})

const serviceAccount = (name: string, namespace: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ServiceAccount',
  metadata: { name, namespace, labels: LABELS },
})

const clusterRole = (name: string, rules: Rule[], labels?: Record<string, string>): KubeObject => ({
  apiVersion: `${RBAC}/v1`,
  kind: 'ClusterRole',
  metadata: { name, labels: { ...LABELS, ...labels } },
  rules,
})

/** Returns an aggregated ClusterRole. The controller manager fills in its rules. */
const aggregated = (name: string, label: string): KubeObject => ({
  apiVersion: `${RBAC}/v1`,
  kind: 'ClusterRole',
  metadata: { name, labels: LABELS },
  aggregationRule: { clusterRoleSelectors: [{ matchLabels: { [label]: 'true' } }] },
})

const clusterBinding = (role: string, accounts: Account[]): KubeObject => ({
  apiVersion: `${RBAC}/v1`,
  kind: 'ClusterRoleBinding',
  metadata: { name: role, labels: LABELS },
  ...bound(role, accounts),
})

const binding = (role: string, namespace: string, accounts: Account[], of: RoleKind = 'ClusterRole'): KubeObject => ({
  apiVersion: `${RBAC}/v1`,
  kind: 'RoleBinding',
  metadata: { name: role, namespace, labels: LABELS },
  ...bound(role, accounts, of),
})

type RoleKind = 'ClusterRole' | 'Role'

const bound = (role: string, accounts: Account[], kind: RoleKind = 'ClusterRole') => ({
  roleRef: { apiGroup: RBAC, kind, name: role },
  subjects: accounts.map((account) => ({ kind: 'ServiceAccount', ...account })),
})

const CONSOLE = 'fairlead-console'
const TO_CONSOLE = { [AGGREGATE.console]: 'true' }

const ofReconcilers = (verbs: string[], ...subresources: string[]): Rule => ({
  apiGroups: [RECONCILERS.group],
  resources: subresources.map((subresource) => RECONCILERS.resource + subresource),
  verbs,
})

/**
 * Returns the account of the console and its RBAC: to review the tokens and permissions of users, and to read the facts
 * that explain an object. Each function adds the kinds that the console reads, by aggregation.
 */
export function consoleRbac(): KubeObject[] {
  return [
    serviceAccount(CONSOLE, SYSTEM_NAMESPACE),
    clusterRole(
      `${CONSOLE}-own`,
      [
        { apiGroups: ['authentication.k8s.io'], resources: ['tokenreviews'], verbs: ['create'] },
        { apiGroups: ['authorization.k8s.io'], resources: ['subjectaccessreviews'], verbs: ['create'] },
        ofReconcilers(['get', 'list'], ''),
        { apiGroups: [''], resources: ['namespaces'], verbs: ['get'] },
        { apiGroups: [''], resources: ['events'], verbs: ['list'] },
      ],
      TO_CONSOLE,
    ),
    aggregated(CONSOLE, AGGREGATE.console),
    clusterBinding(CONSOLE, [inSystemNamespace(CONSOLE)]),
    // These two roles are for users. An administrator binds them.
    clusterRole(`${CONSOLE}-reader`, [ofReconcilers(['get', 'list'], ''), ofReconcilers(['list'], '/dead')]),
    clusterRole(`${CONSOLE}-operator`, [ofReconcilers(['update'], '/queue', '/dead')]),
  ]
}

/** Returns the additional RBAC of a console that allows writes: to record each write in an Event. */
export const consoleWritesRbac = (): KubeObject[] => [
  clusterRole(
    `${CONSOLE}-events`,
    [{ apiGroups: ['events.k8s.io'], resources: ['events'], verbs: ['create', 'get', 'patch'] }],
    TO_CONSOLE,
  ),
]
