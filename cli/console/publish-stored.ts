import type { ResourceRef } from '#contracts'
import type { Config } from '#host/config'
import { clusterId, openKube } from '#host/kube'
import { resourcePath } from '#kube'
import { storeEvents } from '../events/store-events.ts'

/** Stores the event of an object that the API server has, as a bridge would. Returns a description of the result. */
export async function publishStored(
  settings: Config,
  ref: ResourceRef,
  namespace: string | undefined,
  name: string,
): Promise<string> {
  await using kube = await openKube(settings)
  const object = await kube.get(resourcePath(ref, namespace, name))
  const [said = ''] = await storeEvents(settings, settings.FAIRLEAD_CLUSTER ?? (await clusterId(kube)), [
    { ref, verb: 'modified', object },
  ])
  return said
}
