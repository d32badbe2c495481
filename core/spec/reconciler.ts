import { z } from 'zod'
import type { KubeObject } from '#contracts'
import { acted } from './acts.ts'
import { configured } from './config.ts'
import { accountName, namespace, resourceRef } from './forms.ts'
import { metrics } from './metrics.ts'
import { FIELD_PATH, type Labels, type ObjectSelector, parseFieldSelector, parseSelector } from './selector.ts'

/** The API of the Reconciler resource (cluster-scoped). */
export const RECONCILERS = { group: 'fairlead.dev', version: 'v1alpha1', resource: 'reconcilers' } as const

const labelSelector = z.string().max(1000).optional()
const fieldSelector = z.string().max(1000).optional().describe('Field selector, such as status.phase=Running.')
const metadataOnly = z
  .boolean()
  .optional()
  .describe('Only apiVersion, kind and metadata are watched: enough to know which objects exist, and cheap.')

const someInvoke = 'give http or pull'
const byOwnerAlone =
  'an owner is in the namespace of the object, or has none: leave out byName, namespacePath and "Cluster"'
const namingAlone =
  'a field of objects in the namespace of the object has the name: leave out byOwner, namespacePath, kindPath, metadataOnly and "Cluster"'
const eitherPlace = 'leave out "Cluster" beside namespacePath, which names the namespaces'
const byNameToo = 'give byName beside kindPath: a kind without names would be read whole'

const adoptsByApply = 'adopt needs strategy Apply: the others do not change an object that is there'

const owned = z
  .object({
    ...resourceRef,
    strategy: z
      .enum(['Apply', 'CreateOnly', 'Recreate'])
      .default('Apply')
      .describe(
        'Apply: kept as declared. CreateOnly: created if absent, never changed (kinds that are immutable). Recreate: deleted and created again when the function declares something else than before.',
      ),
    adopt: z
      .boolean()
      .optional()
      .describe('An object that has the name of one that the function returns, and no controller, is taken over.'),
    metadataOnly,
  })
  .refine(({ adopt, strategy }) => !adopt || strategy === 'Apply', { path: ['adopt'], message: adoptsByApply })
  .meta({
    'x-kubernetes-validations': [
      { rule: "!has(self.adopt) || !self.adopt || self.strategy == 'Apply'", message: adoptsByApply },
    ],
  })

const kindPath = z.string().max(1000).regex(FIELD_PATH, 'write a path such as spec.target or spec.targets[*]')

const related = z
  .object({
    ...resourceRef,
    selector: labelSelector.describe('Label selector; only objects that match are related.'),
    fieldSelector,
    byName: z
      .string()
      .max(1000)
      .regex(FIELD_PATH, 'write a path such as spec.configMapName or spec.volumes[*].configMap.name')
      .optional()
      .describe('Path in the primary of the name, or the names, of related objects; left out: any name.'),
    namespacePath: z
      .string()
      .max(1000)
      .regex(FIELD_PATH, 'write a path such as status.namespace or spec.targets[*].namespace')
      .optional()
      .describe(
        'Path in the primary of the namespace, or the namespaces, of related objects. If the field is missing, no object is related. Left out: within decides.',
      ),
    within: z
      .enum(['Namespace', 'Cluster'])
      .default('Namespace')
      .describe('Namespace: in the namespace of the primary, and cluster-scoped objects. Cluster: anywhere.'),
    kindPath: kindPath
      .optional()
      .describe(
        'Path in the primary of the object, or the objects, that name kinds by kind and apiVersion (or group). The resource is watched and read for primaries that name its kind, and for no others. A path of byName or namespacePath below it counts in objects that name the kind. Left out: for all primaries.',
      ),
    byOwner: z
      .boolean()
      .optional()
      .describe('Only objects that name the primary in an owner reference, whether it is their controller or not.'),
    naming: z
      .string()
      .max(1000)
      .regex(FIELD_PATH, 'write a path such as spec.nodeName or spec.parentRefs[*].name')
      .optional()
      .describe(
        'Path in the related object of the name, or the names, of primaries; with byName: of names that a primary has in that field. Left out: byName is for the name of the related object.',
      ),
    metadataOnly,
  })
  .refine(
    ({ naming, kindPath, namespacePath, byOwner, metadataOnly, within }) =>
      naming === undefined || (!kindPath && !namespacePath && !byOwner && !metadataOnly && within === 'Namespace'),
    { path: ['naming'], message: namingAlone },
  )
  .refine(
    ({ byOwner, byName, namespacePath, within }) => !byOwner || (!byName && !namespacePath && within === 'Namespace'),
    {
      path: ['byOwner'],
      message: byOwnerAlone,
    },
  )
  .refine(({ metadataOnly, fieldSelector = '' }) => !metadataOnly || isOfMetadata(fieldSelector), {
    path: ['fieldSelector'],
    message: 'with metadataOnly only fields of metadata can be selected',
  })
  .refine(({ namespacePath, within }) => namespacePath === undefined || within !== 'Cluster', {
    path: ['within'],
    message: eitherPlace,
  })
  .refine(({ kindPath, byName }) => kindPath === undefined || byName !== undefined, {
    path: ['byName'],
    message: byNameToo,
  })
  .meta({
    'x-kubernetes-validations': [
      { rule: "!has(self.namespacePath) || !has(self.within) || self.within != 'Cluster'", message: eitherPlace },
      {
        rule: "!has(self.byOwner) || !self.byOwner || !(has(self.byName) || has(self.namespacePath) || (has(self.within) && self.within == 'Cluster'))",
        message: byOwnerAlone,
      },
      { rule: '!has(self.kindPath) || has(self.byName)', message: byNameToo },
      {
        rule: "!has(self.naming) || !(has(self.kindPath) || has(self.namespacePath) || (has(self.byOwner) && self.byOwner) || (has(self.metadataOnly) && self.metadataOnly) || (has(self.within) && self.within == 'Cluster'))",
        message: namingAlone,
      },
    ],
  })

const ofOthers = 'not a finalizer of Kubernetes or of Fairlead'
const formerFinalizer = z
  .string()
  .max(316)
  .regex(
    /^([a-z0-9]([-a-z0-9.]*[a-z0-9])?\/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/,
    'write a finalizer such as cache.example.com/finalizer',
  )
  .refine(
    (name) =>
      !/^(orphan|foregroundDeletion|kubernetes|(.*\.)?(kubernetes\.io|k8s\.io|fairlead\.dev)(\/.*)?)$/.test(name),
    ofOthers,
  )

const eventPath = z
  .string()
  .max(1000)
  .regex(FIELD_PATH, "write a path in a CloudEvent, such as subject, data.order.id or data['order-id']")

const takesNoStatus = 'takes is for the spec: the controller of the kind would set its status again'

const patched = z
  .object({
    ...resourceRef,
    status: z
      .literal(true)
      .optional()
      .describe('The fields of the subresource status. Left out: all fields but these.'),
    takes: z
      .array(
        z
          .string()
          .max(120)
          .regex(/^spec(\.[A-Za-z][-\w]*)+$/, 'write a path in the spec to one value, such as spec.replicas'),
      )
      .min(1)
      .max(16)
      .optional()
      .describe(
        'Single values that are taken from other managers too: spec.replicas. The value of before returns when they are given back.',
      ),
    within: z
      .enum(['Namespace', 'Cluster'])
      .default('Namespace')
      .describe('Namespace: in the namespace of the primary, and cluster-scoped objects. Cluster: anywhere.'),
  })
  .refine(({ status, takes }) => !(status && takes), { path: ['takes'], message: takesNoStatus })
  .meta({ 'x-kubernetes-validations': [{ rule: '!has(self.status) || !has(self.takes)', message: takesNoStatus }] })

/** Whether an object's metadata suffice to evaluate every requirement of a field selector. */
export function isOfMetadata(fieldSelector: string): boolean {
  return fieldSelector.split(',').every((term) => /^\s*(metadata\.|$)/.test(term))
}

export const reconcilerSpec = z.object({
  for: z
    .object({
      ...resourceRef,
      selector: labelSelector.describe('Label selector; only objects that match are reconciled.'),
      fieldSelector,
      namespaces: z.array(namespace).min(1).max(1000).optional().describe('Only these namespaces; left out: all.'),
      status: z
        .enum(['Kept', 'Untouched'])
        .optional()
        .describe(
          'Kept (if left out): the status of the function, and the conditions Reconciled and Paused, are written. Untouched: the status belongs to another controller, or does not exist.',
        ),
    })
    .describe('The primary resource: one key per object.'),
  owns: z.array(owned).max(64).default([]).describe('Changes of these map to their controller owner.'),
  finalize: z
    .boolean()
    .default(false)
    .describe('Objects carry a finalizer: the function runs once more, with finalizing true, before one goes.'),
  formerFinalizers: z
    .array(formerFinalizer)
    .min(1)
    .max(16)
    .optional()
    .describe(
      'Finalizers of operators that the function replaces. They count as its own for an object that is being deleted: it is finalized, and loses them together with that of the function.',
    ),
  related: z.array(related).max(64).default([]).describe('Read, and mapped back, without owning.'),
  kindPaths: z
    .array(kindPath)
    .min(1)
    .max(16)
    .optional()
    .describe(
      'Paths in the primary at which it names kinds. The function is not called for a primary that names one that no entry of related with this kindPath has.',
    ),
  trigger: z
    .object({
      name: eventPath.describe('Path in a CloudEvent of the name of the object: subject, or data.order.id.'),
      namespace: eventPath.optional().describe('Path of its namespace. Left out: the object has none.'),
    })
    .optional()
    .describe('CloudEvents of other systems that name an object run it. Left out: the Reconciler takes none.'),
  metrics: metrics.optional().describe('Metrics that the function may change.'),
  patches: z
    .array(patched)
    .min(1)
    .max(64)
    .optional()
    .describe('Kinds of others of which the function sets fields. They are given back when the primary goes.'),
  acts: z
    .array(acted)
    .min(1)
    .max(64)
    .optional()
    .describe('Requests to a subresource that the function may ask for, each of an object that it observes.'),
  changes: z
    .array(z.enum(['Generation', 'Labels', 'Annotations']))
    .min(1)
    .max(3)
    .optional()
    .describe('An update of the primary counts only if one of these has changed; left out: every update counts.'),
  identity: z
    .string()
    .min(1)
    .max(253)
    .regex(/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/, 'the name of a Reconciler')
    .optional()
    .describe(
      'The name under which created objects are marked, fields managed and finalizers set; left out: the name of the Reconciler. After a rename: the former name.',
    ),
  writes: z
    .array(z.enum(['Metadata', 'Deletion']))
    .min(1)
    .max(2)
    .optional()
    .describe(
      'What the function may write of the primary beside its status. Metadata: labels and annotations. Deletion: it may delete it.',
    ),
  binds: z
    .array(
      z.object({
        kind: z.enum(['ClusterRole', 'Role']),
        name: z
          .string()
          .min(1)
          .max(253)
          .regex(/^[^/%]+$/, 'the name of a role'),
      }),
    )
    .min(1)
    .max(64)
    .optional()
    .describe(
      'Roles that the function names in bindings: the generated rights have the verb bind on these, and on no others.',
    ),
  revision: z
    .string()
    .min(1)
    .max(253)
    .optional()
    .describe('Revision of the function, e.g. a commit: after a change, every object runs again.'),
  resyncSeconds: z
    .int32()
    .min(1)
    .max(31_536_000)
    .optional()
    .describe('Every key runs again about so often, even if nothing has changed; left out: never.'),
  invoke: z
    .object({
      http: z
        .object({ url: z.string().min(1).max(2000) })
        .optional()
        .describe('POST to this address, e.g. a Knative Service.'),
      pull: z
        .object({
          function: z
            .string()
            .max(63)
            .regex(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/, 'the name of a function')
            .optional()
            .describe('The name of the function. Left out: that of the Reconciler.'),
          with: z
            .looseObject({})
            .optional()
            .describe('What that function makes this Reconciler of, as fairlead install --adapter has found it.'),
        })
        .optional()
        .describe('A dispatcher that has the function built in runs it.'),
    })
    .refine(({ http, pull }) => http !== undefined || pull !== undefined, someInvoke)
    .meta({
      description: 'How the function is called: over http where that is given, else by pull.',
      'x-kubernetes-validations': [{ rule: 'has(self.http) || has(self.pull)', message: someInvoke }],
    }),
  concurrency: z.int32().min(1).max(10000).default(256).describe('Keys held at once per dispatcher process.'),
  runRate: z
    .object({
      perSecond: z.number().min(0.001).max(1000),
      burst: z
        .int32()
        .min(1)
        .max(10000)
        .optional()
        .describe('Runs at once after a time without runs. Left out: those of a second, at least 2.'),
    })
    .optional()
    .describe(
      'Runs that all processes together begin: in any W seconds, perSecond × W + burst at most. The other keys wait in the queue. Left out: no limit.',
    ),
  timeoutSeconds: z.int32().min(1).max(3600).default(60),
  external: z
    .object({
      config: configured
        .optional()
        .describe('Values that reads and effects receive, and nothing else: not the decisions, and no record.'),
      timeoutSeconds: z
        .int32()
        .min(1)
        .max(3600)
        .optional()
        .describe('Time limit of each read and each effect. Left out: timeoutSeconds of the Reconciler.'),
      rateLimit: z
        .object({
          perSecond: z.number().min(0.001).max(10000),
          burst: z.int32().min(1).max(10000).default(1).describe('Calls at once after a time without calls.'),
        })
        .optional()
        .describe('Reads and effects of one dispatcher process, on average. Left out: no limit.'),
    })
    .optional()
    .describe(
      'The function manages something outside of Kubernetes: it is asked to read that before it decides, and to perform the effects that it returns.',
    ),
  backoff: z
    .object({
      initialSeconds: z.number().min(0.05).max(3600).default(0.25),
      maxSeconds: z.number().min(0.05).max(86400).default(1000),
      jitter: z.number().min(0).max(1).default(0.1),
    })
    .prefault({}),
  serviceAccount: z
    .object({ name: accountName, namespace })
    .optional()
    .describe('Objects are written, and read from the API server, as this account. Left out: as the dispatcher.'),
  paused: z.boolean().default(false).describe('Nothing runs; changes and timers wait in the queue.'),
  dryRun: z.boolean().default(false).describe('Runs write nothing: what they would change is logged.'),
})

/** A function's specification, as parsed. Bridge and dispatcher share it. */
export type ReconcilerSpec = z.output<typeof reconcilerSpec>
/** Whether the function decides the status of its objects. */
export const keepsStatus = ({ for: primary }: Pick<ReconcilerSpec, 'for'>): boolean => primary.status !== 'Untouched'

/** The namespace of the accounts of Fairlead and of its functions, unless a Reconciler names another one. */
export const SYSTEM_NAMESPACE = 'fairlead-system'

/** Returns the user name of a service account. */
export const userNameOf = ({ namespace, name }: { namespace: string; name: string }): string =>
  `system:serviceaccount:${namespace}:${name}`

/** An annotation of a primary object. With the value `"true"` its reconcilers write nothing of it. */
export const PAUSED_ANNOTATION = 'fairlead.dev/paused'

export type OwnedResource = ReconcilerSpec['owns'][number]
/** `record`: the annotation of the primary that names the related objects: see patchRelations(). */
export type RelatedResource = ReconcilerSpec['related'][number] & { record?: string }
/** The objects of a resource that a Reconciler selects. */
export type SelectedResource = Partial<Pick<ReconcilerSpec['for'], 'selector' | 'fieldSelector' | 'namespaces'>>
export type DeclaredMetric = NonNullable<ReconcilerSpec['metrics']>[number]
export type Backoff = ReconcilerSpec['backoff']

/** Returns whether an object is selected by namespaces, labels and fields. Throws SelectorError. */
export function selectionOf({ namespaces, ...selectors }: SelectedResource): ObjectSelector {
  const selects = indexedSelection(selectors).matcher()
  return (object) => {
    const { namespace, labels = {} } = object.metadata
    const isInside = namespaces === undefined || namespace === undefined || namespaces.includes(namespace)
    return isInside && selects(labels, object)
  }
}

/**
 * Returns the selection by labels and fields in the form that an index of EVENTS needs. The matcher accepts an object of
 * which only the labels are known, even if its fields do not match.
 */
export const indexedSelection = ({ selector = '', fieldSelector = '' }: Omit<SelectedResource, 'namespaces'>) => ({
  text: JSON.stringify([selector, fieldSelector]),
  byFields: fieldSelector !== '',
  matcher: () => {
    const labelsMatch = parseSelector(selector)
    const fieldsMatch = parseFieldSelector(fieldSelector)
    return (labels: Labels, object?: KubeObject) => labelsMatch(labels) && (object === undefined || fieldsMatch(object))
  },
})
