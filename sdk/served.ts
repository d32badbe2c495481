import type { z } from 'zod'
import type { FieldPath } from './rule.ts'
import type { ValidationRule } from './rules.ts'
import type { ConversionStep } from './steps.ts'

/**
 * A value as the API server may send it to a conversion: any field absent. It may also have a wrong type, for the API server
 * converts parts of objects, and objects that are older than their schema.
 *
 * @example
 * import type { Wire } from 'fairlead'
 * const lengthOf = (spec: Wire<{ text: string }>) => spec.text?.length ?? 0
 * lengthOf({}) // => 0
 */
export type Wire<T> = T extends readonly (infer E)[]
  ? Wire<E>[]
  : T extends object
    ? { [K in keyof T]?: Wire<T[K]> | undefined }
    : T | undefined

/**
 * What a conversion gets and returns: no metadata, which is as it was in each version.
 *
 * @example
 * import type { VersionBody } from 'fairlead'
 * import type { z } from 'zod'
 * const body: VersionBody<z.ZodObject<{ text: z.ZodString }>, z.ZodObject> = { spec: { text: 'YAY' } }
 * body.spec?.text // => 'YAY'
 */
export interface VersionBody<Spec extends z.ZodObject, Status extends z.ZodObject> {
  spec?: Wire<z.input<Spec>> | undefined
  status?: Wire<z.input<Status>> | undefined
}

/**
 * A pair of pure functions between a served version and the storage version. Each returns what it can of the other
 * version, and nothing that it does not take from the input: what the other version cannot hold is kept by Fairlead.
 * One that throws, or returns what is not JSON, shows the object without spec and status, and cannot be written through.
 *
 * @example
 * import type { Conversion } from 'fairlead'
 * const page: Conversion<{ spec?: { text?: string } }, { spec?: { lines?: string[] } }> = {
 *   up: ({ spec }) => ({ spec: { lines: spec?.text?.split('\n') } }),
 *   down: ({ spec }) => ({ spec: { text: spec?.lines?.join('\n') } }),
 * }
 * page.up({ spec: { text: 'a\nb' } }) // => { spec: { lines: ['a', 'b'] } }
 */
export interface Conversion<Old, Now> {
  up(old: Old): Now
  down(now: Now): Old
}

/** The paths of the fields of a type, without elements of lists and records. */
type Fields<T> = T extends readonly unknown[]
  ? never
  : T extends object
    ? {
        [K in keyof T as string extends K ? never : K]: K extends string
          ? `.${K}` | `.${K}${Fields<NonNullable<T[K]>>}`
          : never
      } extends infer Paths
      ? Paths[keyof Paths] & string
      : never
    : never

/** The steps between two specs. The status of the served version may be another one, so its paths are checked by `resource()`. */
type StepsBetween<
  Old extends z.ZodObject,
  Spec extends z.ZodObject,
  Status extends z.ZodObject,
> = readonly ConversionStep<
  Extract<Fields<{ spec: z.input<Old> }>, FieldPath> | `.status.${string}`,
  Extract<Fields<{ spec: z.input<Spec>; status: z.input<Status> }>, FieldPath>
>[]

/**
 * Another version of a resource that the API server serves beside the stored one.
 *
 * @example
 * import { resource, type ServedVersion, z } from 'fairlead'
 * const spec = z.object({ html: z.string() })
 * const old: ServedVersion = { version: 'v1beta1', spec, deprecated: 'use example.com/v1' }
 * const Page = resource({
 *   group: 'example.com', version: 'v1', kind: 'Page', plural: 'pages', served: [old], spec, status: z.object({}),
 * })
 * Page.crd().spec.versions.map(({ name, storage }) => [name, storage]) // => [['v1', true], ['v1beta1', false]]
 */
export interface ServedVersion<
  Old extends z.ZodObject = z.ZodObject,
  Spec extends z.ZodObject = z.ZodObject,
  Status extends z.ZodObject = z.ZodObject,
> {
  /** The name of the version, such as `v1beta1`. */
  version: string
  spec: Old
  /** @default the status of the storage version */
  status?: z.ZodObject
  /** @default the rules of the storage version; with `convert`, none */
  validations?: readonly ValidationRule[]
  /** The warning that kubectl prints for requests to this version, e.g. `use example.com/v1`. */
  deprecated?: string
  /**
   * No client can use it any more, and it can still be converted, for what names it: `fairlead versions` takes it away step by
   * step.
   *
   * @default false
   */
  retired?: boolean
  /**
   * How the fields of this version become those of the storage version and back: steps (`moved`, `wrapped`, `mapped`,
   * `scaled`), or a pair of functions.
   *
   * @default a field has the same path and meaning in both versions
   */
  convert?: Conversion<VersionBody<Old, z.ZodObject>, VersionBody<Spec, Status>> | StepsBetween<Old, Spec, Status>
}
