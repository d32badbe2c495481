import { stringify } from 'yaml'
import type { AppliedObject, KubeObject } from '#sdk'
import type { RenderedObject } from './render.ts'

/** The limit of what a status may add to its object, in characters. */
const LARGEST_MANIFEST = 128 * 1024

/** Returns the objects as YAML. Undefined: the text is too large for a status. */
export function manifestOf(objects: readonly AppliedObject[]): string | undefined {
  const text = objects.map((object) => stringify(withoutSecrets({ ...object, retain: undefined }))).join('---\n')
  return text.length > LARGEST_MANIFEST ? undefined : text
}

/** Leaves out the contents of a Secret. */
export function withoutSecrets(object: KubeObject): object {
  const { data: _, ...others } = object as KubeObject & { data?: unknown }
  return object.kind === 'Secret' && object.apiVersion === 'v1' ? others : object
}

/** Leaves out what another rendering draws anew. */
export function withoutDrawn({ object, drawn }: RenderedObject): KubeObject {
  const fixed = structuredClone(object)
  for (const path of drawn) {
    const [last] = path.slice(-1)
    const parent = path.slice(0, -1).reduce<unknown>((at, step) => (at as Record<string, unknown>)[step], fixed)
    if (last !== undefined) (parent as Record<string, unknown>)[last] = null
  }
  return fixed
}

/** Whether Helm leaves the object when its release goes, or when the chart makes it no longer. */
export const isKept = ({ metadata }: { metadata: { annotations?: Record<string, string> } }): boolean =>
  metadata.annotations?.['helm.sh/resource-policy']?.trim().toLowerCase() === 'keep'
