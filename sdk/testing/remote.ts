import { apiVersionOf, type Invoke, isRecord, type KubeObject, type ResourceRef } from '#contracts'
import { parseOutcome } from '#reconcile'
import { Deployment, Job, type Kind, type Reconciler, StatefulSet } from '#sdk'
import { isSameKind, type ReconcilerSpec } from '#spec'
import { changesBetween } from './broken.ts'
import { deploymentsRun, jobsRun, statefulSetsRun } from './controllers.ts'
import { isOfKind, preparedAs } from './given.ts'
import { lawsRepeatedBy } from './laws.ts'
import type { Scenario, Step } from './scenario.ts'
import type { Controller, Simulation } from './simulation.ts'
import { PRESERVE, type Schema, Values } from './values.ts'

/** A function in any language, and what is applied for it. */
export interface RemoteFunction {
  /** Of the Reconciler. */
  name: string
  spec: ReconcilerSpec
  /** The CustomResourceDefinition of its objects. Undefined: they are a kind of Kubernetes. */
  definition: KubeObject | undefined
  /** Objects that are admitted, and objects that the function reads. */
  objects: readonly KubeObject[]
  invoke: Invoke
}

/**
 * Returns the laws of a function that is called over HTTP or as a program, as rows of lawsOf(), on a history that is made
 * from the schema of its objects: an object, edits of its spec, deletions of owned objects, and time. `seed`: an odd one
 * begins with an example, if there is one. Throws an Error if no history can be made.
 */
export function remoteLawsOf(
  { name, spec, definition, objects, invoke }: RemoteFunction,
  seed: number,
  repeat: (which: string, law: string) => string,
): ReturnType<typeof lawsRepeatedBy> {
  if (spec.external !== undefined)
    throw new Error(`Reconciler ${name} has an external system, which the laws need a model of: test it with lawsOf()`)
  const schema = schemaIn(definition, spec.for)
  const examples = objects.filter((one) => isOfKind(one, spec.for))
  const others = objects.filter((one) => spec.related.some((kind) => isOfKind(one, kind)) && !examples.includes(one))
  const remote = preparedAs(declared(name, spec), {
    spec,
    invoke: async (input, context) =>
      parseOutcome(await invoke({ ...input, object: input.object && withDefaults(schema, input.object) }, context)),
  })
  const first = firstOf(spec, definition, examples)
  const history = historyOf(remote, { schema, examples, first, others, seed })
  return lawsRepeatedBy(remote, history, repeat)
}

/** Returns the declaration in the Reconciler as that of a module. Its functions are never called. */
function declared(name: string, spec: ReconcilerSpec): Reconciler {
  const { owns, related, acts, patches, resyncSeconds } = spec
  const unused = (): never => {
    throw new Error(`${name} is called from outside`)
  }
  return {
    name,
    for: kindOf(spec.for),
    owns: owns.map(kindOf),
    related: related.map(kindOf),
    ...(acts && { acts: acts.map(kindOf) }),
    ...(patches && { patches: patches.map(kindOf) }),
    ...(resyncSeconds !== undefined && { resyncSeconds }),
    reconcile: unused,
    ...(spec.finalize && { finalize: unused }),
  }
}

const kindOf = <Ref extends ResourceRef & { kind: string }>(ref: Ref): Ref & Kind<KubeObject> => ({
  strategy: 'Apply' as const,
  ...ref,
  parse: (object) => object,
  of: (body: object) => ({ apiVersion: apiVersionOf(ref), kind: ref.kind, ...body }) as KubeObject,
})

interface VersionOfDefinition {
  name: string
  schema?: { openAPIV3Schema?: Schema }
}

function schemaIn(definition: KubeObject | undefined, { version }: ResourceRef): Schema {
  const { versions = [] } = (definition?.spec ?? {}) as { versions?: VersionOfDefinition[] }
  return versions.find(({ name }) => name === version)?.schema?.openAPIV3Schema ?? {}
}

/** Returns the object without a spec: the names and labels that the Reconciler selects are those of an example. */
function firstOf(
  { for: primary }: ReconcilerSpec,
  definition: KubeObject | undefined,
  [example]: readonly KubeObject[],
): KubeObject {
  const { kind, selector, fieldSelector, namespaces: [namespace = 'default'] = [] } = primary
  if (example === undefined && (selector ?? fieldSelector) !== undefined)
    throw new Error(`the Reconciler selects ${kind} by ${selector ?? fieldSelector}: add an example that it selects`)
  const isNamespaced = (definition?.spec as { scope?: string } | undefined)?.scope !== 'Cluster'
  const metadata = { name: 'a', ...(isNamespaced && { namespace }), ...example?.metadata }
  return { apiVersion: apiVersionOf(primary), kind, metadata }
}

/** Returns the object as the API server would have filled it in. */
function withDefaults(schema: Schema, object: KubeObject): KubeObject {
  const spec = schema.properties?.['spec']
  return spec === undefined || object.spec === undefined ? object : { ...object, spec: filled(spec, object.spec) }
}

function filled(schema: Schema, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => filled(schema.items ?? {}, item))
  if (!isRecord(value)) return value
  const fields = Object.entries(schema.properties ?? {}).flatMap(([name, field]): [string, unknown][] => {
    const given = value[name] ?? structuredClone(field['default'])
    return given === undefined ? [] : [[name, filled(field, given)]]
  })
  return { ...value, ...Object.fromEntries(fields) }
}

interface History {
  schema: Schema
  examples: readonly KubeObject[]
  first: KubeObject
  others: readonly KubeObject[]
  seed: number
}

/** The number of edits, one after the other. */
const EDITS = 3
const MOST_TRIES = 20
const HOUR_S = 3600

function historyOf(remote: Reconciler, { schema, examples, first, others, seed }: History): Scenario {
  const { kind } = remote.for
  const ofSpec = tame(schema.properties?.['spec'] ?? {})
  const isKnown = ofSpec.type === 'object'
  const values = new Values(
    seed,
    examples.map(({ spec }) => spec),
  )
  const [example] = examples
  const made = example !== undefined && (seed % 2 === 1 || !isKnown) ? example.spec : values.admitted(ofSpec)
  if (example === undefined && !(isKnown && isRecord(made)))
    throw new Error(`no spec of ${kind} can be made from its schema: add an example of it to the files`)
  let spec: unknown = made
  const edits: Step[] = []
  for (let tries = 0; edits.length < (isKnown ? EDITS : 0) && tries < MOST_TRIES; tries++) {
    const edited = values.edited(spec, ofSpec)
    const lines = changesBetween({ spec }, { spec: edited })
    if (lines.length === 0 || !isRecord(edited)) continue
    const patch = patchBetween(spec, edited)
    spec = edited
    edits.push([lines.join('; '), (world) => onObject(world, () => world.edit({ spec: patch }))])
  }
  const deletions = remote.owns.map((owned): Step => [`each ${owned.kind} is deleted`, (world) => world.delete(owned)])
  const [edit, ...laterEdits] = edits
  const [deletion, ...otherDeletions] = deletions
  // An edit and a deletion come in any order.
  const unordered = edit && deletion ? [[edit, deletion]] : [edit, deletion].filter((one) => one !== undefined)
  const hour: Step = ['an hour passes', (world) => world.advance(HOUR_S)]
  const cluster = partsOf(remote)
  return {
    objects: [{ ...first, ...(made !== undefined && { spec: made }) }, ...others],
    steps: [...unordered, ...laterEdits, ...otherDeletions, hour],
    ...(cluster.length > 0 && { cluster }),
  }
}

function onObject(world: Simulation, edit: () => void): void {
  if (world.object !== undefined) edit()
}

/** The controllers of the cluster that play with what the function owns. */
function partsOf({ owns }: Reconciler): Controller[] {
  const parts: [Kind<unknown>, Controller][] = [
    [Deployment, deploymentsRun],
    [StatefulSet, statefulSetsRun],
    [Job, jobsRun],
  ]
  return parts.filter(([kind]) => owns.some((one) => isSameKind(one, kind))).map(([, part]) => part)
}

/** Returns the merge patch that makes the one value of the other. */
function patchBetween(before: unknown, after: Record<string, unknown>): Record<string, unknown> {
  if (!isRecord(before)) return after
  const gone = Object.keys(before).filter((name) => !Object.hasOwn(after, name))
  const changed = Object.entries(after).map(([name, value]): [string, unknown] => [
    name,
    isRecord(value) ? patchBetween(before[name], value) : value,
  ])
  return Object.fromEntries([...gone.map((name): [string, unknown] => [name, null]), ...changed])
}

/** How far above its least value a number goes: thousands of replicas would be thousands of pods. */
const SPAN = 5

/** Returns the schema with bounds of its numbers: without any, they are 0 and more. */
function tame(schema: Schema): Schema {
  const { properties, items, additionalProperties } = schema
  const isNumber = schema.type === 'integer' || schema.type === 'number'
  const span = SPAN * Math.max(1, Number(schema['multipleOf'] ?? 1))
  const most = Number(schema['maximum'] ?? Number.POSITIVE_INFINITY)
  const least = Number(schema['minimum'] ?? (most < 0 ? most - span : 0))
  return {
    ...schema,
    ...(isNumber && {
      minimum: least,
      maximum: Math.min(most, least + span),
    }),
    ...(properties && {
      properties: Object.fromEntries(Object.entries(properties).map(([name, one]) => [name, tame(one)])),
    }),
    ...(items && { items: tame(items) }),
    ...(additionalProperties && { additionalProperties: tame(additionalProperties) }),
    ...(schema[PRESERVE] === true && { [PRESERVE]: false }),
  }
}
