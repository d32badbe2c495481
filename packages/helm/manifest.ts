import { stringify } from 'yaml'
import type { AppliedObject, KubeObject } from '#sdk'

/** The limit of what a status may add to its object, in characters. */
const LARGEST_MANIFEST = 128 * 1024

/** Returns the objects as YAML. Undefined: the text is too large for a status. */
export function manifestOf(objects: readonly AppliedObject[]): string | undefined {
  const text = objects.map((object) => stringify(withoutSecrets({ ...object, retain: undefined }))).join('---\n')
  return text.length > LARGEST_MANIFEST ? undefined : text
}

/** Leaves out the contents of a Secret. */
export function withoutSecrets(object: KubeObject): object {
  const { data: _, stringData: __, ...others } = object as KubeObject & { data?: unknown; stringData?: unknown }
  return object.kind === 'Secret' && object.apiVersion === 'v1' ? others : object
}

/** Whether Helm leaves the object when its release goes, or when the chart makes it no longer. */
export const isKept = ({ metadata }: { metadata: { annotations?: Record<string, string> } }): boolean =>
  metadata.annotations?.['helm.sh/resource-policy']?.trim().toLowerCase() === 'keep'
