import { parse } from 'yaml'
import { z } from 'zod'
import { isRecord, type KubeObject } from '#contracts'

const labelSelector = z.strictObject({
  matchLabels: z.record(z.string(), z.string()).default({}),
  matchExpressions: z
    .array(
      z.strictObject({
        key: z.string(),
        operator: z.enum(['In', 'NotIn', 'Exists', 'DoesNotExist']),
        values: z.array(z.string()).default([]),
      }),
    )
    .default([]),
})
const names = z.strictObject({ matchNames: z.array(z.string()) })
const events = z.array(z.enum(['Added', 'Modified', 'Deleted']))
const fieldSelector = z.strictObject({
  matchExpressions: z.array(
    z.strictObject({
      field: z.string(),
      operator: z.enum(['=', '==', 'Equals', '!=', 'NotEquals']),
      value: z.string(),
    }),
  ),
})

const binding = z.strictObject({
  name: z.string().default('kubernetes'),
  apiVersion: z.string().optional(),
  kind: z.string().min(1),
  executeHookOnEvent: events.optional(),
  watchEvent: events.optional(),
  executeHookOnSynchronization: z.boolean().default(true),
  waitForSynchronization: z.boolean().optional(),
  keepFullObjectsInMemory: z.boolean().default(true),
  resynchronizationPeriod: z.string().optional(),
  nameSelector: names.optional(),
  labelSelector: labelSelector.optional(),
  fieldSelector: fieldSelector.optional(),
  namespace: z.strictObject({ nameSelector: names.optional(), labelSelector: labelSelector.optional() }).optional(),
  jqFilter: z.string().optional(),
  includeSnapshotsFrom: z.array(z.string()).default([]),
  allowFailure: z.boolean().default(false),
  queue: z.string().optional(),
  group: z.string().optional(),
})

/** What a hook prints with `--config` (shell-operator 1.20, pkg/hook/config/schemas.go). */
const config = z.strictObject({
  configVersion: z.literal('v1'),
  kubernetes: z.array(binding).default([]),
  onStartup: z.unknown().optional(),
  schedule: z.unknown().optional(),
  settings: z.unknown().optional(),
  kubernetesValidating: z.unknown().optional(),
  kubernetesMutating: z.unknown().optional(),
  kubernetesCustomResourceConversion: z.unknown().optional(),
})

export type Binding = z.output<typeof binding>

/** The part of a configuration that runs. */
export interface HookConfig {
  /** The objects that the hook runs for. */
  primary: Binding
  /** The objects that it reads. */
  snapshots: readonly Binding[]
  /** The hook is run for objects that go. */
  hearsDeleted: boolean
}

/** What becomes of a part of the configuration. */
export interface Finding {
  is: 'runs' | 'differs' | 'refused'
  /** The part, and what follows from it. */
  text: string
}

const INSTEAD: [field: keyof z.output<typeof config>, instead: string][] = [
  ['onStartup', 'a run is for an object: keep it in shell-operator'],
  ['schedule', 'times are those of objects here (resyncSeconds of the Reconciler): keep it in shell-operator'],
  ['kubernetesValidating', 'keep it in shell-operator, or write rules or validate of a resource'],
  ['kubernetesMutating', 'keep it in shell-operator, or write defaults of a schema'],
  ['kubernetesCustomResourceConversion', 'keep it in shell-operator, or write convert of a resource'],
]

/** Returns what runs of a configuration, and what differs or is refused. `config` is undefined if anything is refused. */
export function verdictOn(printed: string): { config: HookConfig | undefined; findings: Finding[] } {
  const findings: Finding[] = []
  const refuse = (text: string): void => void findings.push({ is: 'refused', text })
  const { success, data, error } = config.safeParse(parsed(printed))
  if (!success) {
    for (const { path, message } of error.issues) refuse(`${path.join('.') || 'the configuration'}: ${message}`)
    return { config: undefined, findings }
  }
  for (const [field, instead] of INSTEAD) if (data[field] !== undefined) refuse(`${field}: ${instead}`)
  if (data.settings !== undefined)
    findings.push({ is: 'differs', text: 'settings: not used. Set runRate of the Reconciler' })

  const bindings = data.kubernetes
  const [primary, ...more] = bindings.filter((one) => eventsOf(one).length > 0)
  const twice = bindings.find(({ name }, index) => bindings.findIndex((one) => one.name === name) < index)
  if (twice !== undefined) refuse(`${called(twice)}: another binding has this name: give each a name`)
  if (primary === undefined) {
    if (findings.length === 0) refuse('kubernetes: no binding has events, so nothing would run the hook')
    return { config: undefined, findings }
  }
  for (const one of more)
    refuse(
      `${called(one)}: has events, as ${called(primary)} has: a hook runs for the objects of one binding. ` +
        'Give it executeHookOnEvent: [] and read its snapshot, or make a hook of it',
    )
  const snapshots = primary.includeSnapshotsFrom.flatMap((name) => {
    const found = bindings.find((one) => one.name === name && one !== primary)
    if (found !== undefined) return [found]
    refuse(`${called(primary)}: includeSnapshotsFrom names ${name}, which is no other kubernetes binding`)
    return []
  })
  findings.push(...ofPrimary(primary), ...snapshots.flatMap(ofSnapshot))
  for (const one of bindings) findings.push(...ofAny(one))
  const isRefused = findings.some(({ is }) => is === 'refused')
  const hearsDeleted = eventsOf(primary).includes('Deleted')
  return { config: isRefused ? undefined : { primary, snapshots, hearsDeleted }, findings }
}

function parsed(printed: string): unknown {
  try {
    return parse(printed)
  } catch (error) {
    return `no YAML: ${(error as Error).message}`
  }
}

/** `watchEvent` is the former name of the field. */
const eventsOf = ({ executeHookOnEvent, watchEvent }: Binding): readonly string[] =>
  executeHookOnEvent ?? watchEvent ?? events.element.options

const called = ({ name }: Binding): string => `kubernetes binding ${name}`
const kindOf = ({ apiVersion, kind }: Binding): string => (apiVersion === undefined ? kind : `${apiVersion} ${kind}`)

function ofPrimary(one: Binding): Finding[] {
  const [name, heard] = [called(one), eventsOf(one)]
  if (!heard.includes('Added')) {
    const why = 'a run is about the state of an object, not about its change'
    return [{ is: 'refused', text: `${name}: executeHookOnEvent has no Added: ${why}` }]
  }
  const found: Finding[] = [{ is: 'runs', text: `${name}: once for each ${kindOf(one)}, which is spec.for` }]
  const differs = (isSo: boolean, text: string): void => void (isSo && found.push({ is: 'differs', text }))
  differs(
    heard.includes('Modified'),
    `${name}: each run says Added, also after a change. Several changes cause one run`,
  )
  differs(
    heard.includes('Deleted'),
    `${name}: Deleted comes before the object goes, if spec.finalize of the Reconciler is true`,
  )
  differs(
    one.executeHookOnSynchronization,
    `${name}: Synchronization does not come. Each object that exists has a run, with Added`,
  )
  differs(one.jqFilter !== undefined, `${name}: a change that jqFilter does not see causes a run, too`)
  differs(one.resynchronizationPeriod !== undefined, `${name}: set resyncSeconds of the Reconciler`)
  differs(true, `${name}: objects run at the same time, in no order, up to spec.concurrency and --concurrency`)
  differs(
    one.allowFailure,
    `${name}: allowFailure is not used. A failure is repeated with backoff, and holds up no other object`,
  )
  return found
}

function ofSnapshot(one: Binding): Finding[] {
  return [
    { is: 'runs', text: `${called(one)}: each ${kindOf(one)} is in the snapshot, and in spec.related or spec.owns` },
    { is: 'differs', text: `${called(one)}: a change of an object in the snapshot runs the hook` },
  ]
}

function ofAny(one: Binding): Finding[] {
  const found: Finding[] = []
  const refuse = (text: string): void => void found.push({ is: 'refused', text: `${called(one)}: ${text}` })
  if (one.group !== undefined) refuse('group is one run for all objects, and a run here is for one object')
  if (one.namespace?.labelSelector !== undefined)
    refuse('namespace.labelSelector needs labels of namespaces: name them')
  return found
}

/** Whether a binding selects the object, whatever the Reconciler selects. */
export function isSelected(one: Binding, object: KubeObject): boolean {
  const { metadata } = object
  const { nameSelector, namespace, labelSelector: labels, fieldSelector: fields } = one
  return (
    (nameSelector?.matchNames.includes(metadata.name) ?? true) &&
    (namespace?.nameSelector?.matchNames.includes(metadata.namespace ?? '') ?? true) &&
    (labels === undefined || hasLabels(labels, metadata.labels ?? {})) &&
    (fields?.matchExpressions ?? []).every(
      ({ field, operator, value }) => (fieldOf(object, field) === value) !== ['!=', 'NotEquals'].includes(operator),
    )
  )
}

function hasLabels(
  { matchLabels, matchExpressions }: z.output<typeof labelSelector>,
  labels: Record<string, string>,
): boolean {
  return (
    Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
    matchExpressions.every(({ key, operator, values }) => {
      const value = labels[key]
      if (operator === 'Exists' || operator === 'DoesNotExist') return (value !== undefined) === (operator === 'Exists')
      return (value !== undefined && values.includes(value)) === (operator === 'In')
    })
  )
}

/** Returns the value as the API server selects by it: a text. */
function fieldOf(object: KubeObject, path: string): string {
  const value = path.split('.').reduce<unknown>((at, name) => (isRecord(at) ? at[name] : undefined), object) ?? ''
  return typeof value === 'string' ? value : JSON.stringify(value)
}
