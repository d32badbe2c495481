import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { KubeObject } from '#contracts'
import { UsageError } from '#host/exit'
import { type KubeClient, resourcePath, servedResources } from '#kube'
import { pause } from '#primitives'
import { objectsIn, served } from '../events/objects.ts'

const FIELD_MANAGER = 'fairlead-dev'
const LOOK_AGAIN_MS = 500

interface Condition {
  type: string
  status: string
  reason?: string
  message?: string
}

/** Returns the objects of a file, or of all YAML and JSON files of a folder. */
export async function examplesIn(path: string): Promise<KubeObject[]> {
  const isFolder = await stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  )
  if (!isFolder) return objectsIn(path)
  const names = (await readdir(path)).filter((name) => /\.(ya?ml|json)$/.test(name)).sort()
  return (await Promise.all(names.map((name) => objectsIn(join(path, name))))).flat()
}

/**
 * Applies objects as soon as their kinds are served, and prints their conditions at each change, until the signal. A
 * rejection of the API server is printed once and the object is tried again, since a change of the function may fix it.
 */
export async function followExamples(
  kube: KubeClient,
  objects: readonly KubeObject[],
  say: (text: string) => void,
  signal: AbortSignal,
): Promise<void> {
  await Promise.all(objects.map((object) => follow(kube, object, say, signal)))
}

async function follow(
  kube: KubeClient,
  object: KubeObject,
  say: (text: string) => void,
  signal: AbortSignal,
): Promise<void> {
  const { namespace, name } = object.metadata
  const title = `${object.kind} ${namespace === undefined ? name : `${namespace}/${name}`}`
  let path: string | undefined
  let said = ''
  const tell = (text: string): void => {
    if (text !== said) say(text)
    said = text
  }
  for (; !signal.aborted; await pause(LOOK_AGAIN_MS, signal)) {
    try {
      if (path === undefined) {
        const resource = served(object, await servedResources(kube))
        const target = resourcePath(resource, resource.namespaced ? (namespace ?? 'default') : undefined, name)
        await kube.apply(target, object, { fieldManager: FIELD_MANAGER, force: true })
        path = target
        tell(`${title} is applied`)
      }
      const { conditions = [] } = ((await kube.get(path)).status ?? {}) as { conditions?: Condition[] }
      if (conditions.length > 0) tell(`${title}: ${conditions.map(shown).join(', ')}`)
    } catch (error) {
      const isUnserved = error instanceof UsageError
      if (!signal.aborted)
        tell(isUnserved ? `${title} waits for its definition` : `${title}: ${(error as Error).message}`)
    }
  }
}

const shown = ({ type, status, reason = '', message = '' }: Condition): string =>
  `${type}=${status} (${reason}${message === '' ? '' : `: ${message}`})`
