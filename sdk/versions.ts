import type { z } from 'zod'
import { type ConversionPair, type Conversions, waysOfPair } from './conversion.ts'
import { objectSchema, type ResourceOptions } from './crd.ts'
import { type ConversionStep, waysOf } from './steps.ts'

type Options = ResourceOptions<z.ZodObject, z.ZodObject>

/**
 * A version as the laws of conversions see it.
 *
 * @example
 * import type { ResourceVersion } from 'fairlead'
 * const isConverted = ({ convert }: Pick<ResourceVersion, 'convert'>) => convert !== undefined
 * isConverted({}) // => false
 */
export interface ResourceVersion extends Pick<Conversions['others'][number], 'version' | 'schema'> {
  spec: z.ZodObject
  status: z.ZodObject
  /** What the author has written. Left out: the storage version, or one with the same fields. */
  convert?: ConversionPair | readonly ConversionStep[]
}

/** Returns the versions of a resource, the stored one first. */
export function versionsOf(options: Options): [stored: ResourceVersion, ...others: ResourceVersion[]] {
  const { version, spec, status, served = [] } = options
  return [
    { version, spec, status, schema: objectSchema(options) },
    ...served.map((one) => {
      const { validations, convert } = one
      const own = { version: one.version, spec: one.spec, status: one.status ?? status }
      if (convert === undefined) return { ...own, schema: objectSchema({ ...options, ...one }) }
      return { ...own, schema: objectSchema({ ...own, validations }), convert }
    }),
  ]
}

/** Throws an Error for a step that does not fit its versions. */
export function conversionsOf(
  { group, kind }: Pick<Options, 'group' | 'kind'>,
  [stored, ...others]: readonly [ResourceVersion, ...ResourceVersion[]],
): Conversions {
  const { version, schema } = stored
  return {
    group,
    kind,
    version,
    schema,
    others: others.map(({ version: name, schema: old, convert = [] }) => {
      try {
        return { version: name, schema: old, ...('up' in convert ? waysOfPair(convert) : waysOf(convert, old, schema)) }
      } catch (error) {
        throw new Error(`resource ${kind}: ${name}: ${(error as Error).message}`, { cause: error })
      }
    }),
  }
}
