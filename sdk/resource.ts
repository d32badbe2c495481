import { z } from 'zod'
import { apiVersionOf, type KeptStatus, type KubeObject, keptStatus, type ObjectMeta, TerminalError } from '#contracts'
import { type CustomResourceDefinition, crdOf, type ResourceOptions } from './crd.ts'
import { explain } from './explain.ts'
import type { Kind } from './kinds.ts'
import { refuseWrongResource } from './resource-options.ts'

/** An object that its schema has admitted. Nothing in the status is certain: at first nobody has written it. */
export type Parsed<Spec extends z.ZodObject, Status extends z.ZodObject> = {
  apiVersion: string
  kind: string
  metadata: ObjectMeta
  spec: z.output<Spec>
  status: Partial<z.output<Status>> & KeptStatus
}

export interface Resource<Spec extends z.ZodObject = z.ZodObject, Status extends z.ZodObject = z.ZodObject>
  extends Kind<Parsed<Spec, Status>> {
  /** What a function may return as status: every required field, no unknown one. */
  readonly outcomeStatus: Status
  /** An object of this kind, to be applied. `status` is for tests: nobody applies one. */
  of(body: { metadata: ObjectMeta; spec: z.input<Spec>; status?: Partial<z.input<Status>> & KeptStatus }): KubeObject
  /** Throws, with the path, for what a CustomResourceDefinition cannot say. */
  crd(): CustomResourceDefinition
}

/** A custom resource: its TypeScript types, its CustomResourceDefinition and its checks on reading, from one schema. */
export function resource<Spec extends z.ZodObject, Status extends z.ZodObject>(
  options: ResourceOptions<Spec, Status>,
): Resource<Spec, Status> {
  refuseWrongResource(options)
  const { group, version, kind, plural, spec, status } = options
  refuseKeptFields(kind, status)
  const schema = z.looseObject({ spec, status: observedStatus(status) })
  return Object.freeze({
    group,
    version,
    resource: plural,
    kind,
    strategy: 'Apply' as const,
    outcomeStatus: status.def.catchall === undefined ? (status.strict() as unknown as Status) : status,
    parse: (object: KubeObject) => parse(schema, object) as Parsed<Spec, Status>,
    of: (body: object) => ({ apiVersion: apiVersionOf(options), kind, ...body }) as KubeObject,
    crd: () => crdOf(options),
  })
}

/** Whether the kind is a custom resource of the author's own, and not one that is there anyway. */
export const isResource = (kind: Kind<unknown>): kind is Resource => 'crd' in kind

/** The CustomResourceDefinitions that functions bring. */
export const definitionsOf = (functions: readonly { for: Kind<unknown> }[]): CustomResourceDefinition[] =>
  functions.flatMap((one) => (isResource(one.for) ? [one.for.crd()] : []))

/** A check in code holds no deletion back. */
function parse(schema: z.ZodType, object: KubeObject): unknown {
  const complete = { ...object, spec: object.spec ?? {}, status: object.status ?? {} }
  const { success, data, error } = schema.safeParse(complete)
  const isGoing = object.metadata.deletionTimestamp !== undefined
  if (!success && isGoing && error.issues.every(({ code }) => code === 'custom')) return withDefaults(schema, complete)
  if (!success) throw new TerminalError(explain(error, complete), { reason: 'InvalidObject', cause: error })
  return data
}

/** What has the types of its schema, and fails checks in code only. */
function withDefaults(schema: z.ZodType, value: unknown): unknown {
  const payload = schema._zod.run({ value, issues: [] }, { async: false })
  return payload instanceof Promise ? value : payload.value
}

/** Optional as in the CRD, and with what is kept for every resource. */
function observedStatus(status: z.ZodObject): z.ZodObject {
  const own = Object.entries(status.shape).map(([name, field]) => [name, z.optional(field)] as const)
  return z.looseObject({ ...Object.fromEntries(own), ...keptStatus.shape })
}

function refuseKeptFields(kind: string, status: z.ZodObject): void {
  const kept = Object.keys(keptStatus.shape).find((name) => name in status.shape)
  if (kept !== undefined)
    throw new Error(`resource ${kind}: status.${kept} is kept by the platform: leave it out of the schema`)
}
