import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject, RunLog } from '#contracts'
import type { Config } from '#host/config'
import { type KubeClient, resourcePath } from '#kube'

const PODS = { group: '', version: 'v1', resource: 'pods' }
/** The kubelet reports the image digest a second or two after the container has started. */
const TRIES = 10
const PAUSE_MS = 1000

interface Pod extends KubeObject {
  status?: { containerStatuses?: { name: string; imageID?: string }[] }
}

/**
 * Returns the revision of the functions in this process: from the environment, else the digest of its container's
 * image. Undefined if neither is known: then no change of the revision is detected.
 */
export async function ownRevision(
  kube: Pick<KubeClient, 'get'>,
  { FAIRLEAD_REVISION, POD_NAME, POD_NAMESPACE, POD_CONTAINER }: Config,
  log: Pick<RunLog, 'warn'>,
  pause: (ms: number) => Promise<unknown> = sleep,
): Promise<string | undefined> {
  if (FAIRLEAD_REVISION !== undefined) return FAIRLEAD_REVISION
  if (POD_NAME === undefined || POD_NAMESPACE === undefined || POD_CONTAINER === undefined) return undefined
  try {
    for (let left = TRIES; left > 0; left--) {
      const digest = digestIn(await kube.get<Pod>(resourcePath(PODS, POD_NAMESPACE, POD_NAME)), POD_CONTAINER)
      if (digest !== undefined) return digest
      await pause(PAUSE_MS)
    }
    log.warn({ pod: POD_NAME, container: POD_CONTAINER }, 'the image digest is not known: set FAIRLEAD_REVISION')
  } catch (error) {
    log.warn({ err: error }, 'the image digest cannot be read: a new revision of functions here is not noticed')
  }
  return undefined
}

function digestIn({ status }: Pod, container: string): string | undefined {
  const { imageID = '' } = status?.containerStatuses?.find(({ name }) => name === container) ?? {}
  return /sha256:[0-9a-f]{64}/.exec(imageID)?.[0]
}
