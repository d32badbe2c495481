import { type KubeClient, resourcePath } from '#kube'
import { until } from '../support/wait.ts'
import { Place } from './clusters-function.ts'

export const createPlace = (kube: KubeClient, name: string) =>
  kube.create(resourcePath(Place, 'default'), {
    apiVersion: `${Place.group}/${Place.version}`,
    kind: Place.kind,
    metadata: { name, namespace: 'default' },
    spec: { size: 1 },
  })

/** Resolves with the status of the object, when it has one. */
export const statusOfPlace = (kube: KubeClient, name: string) =>
  until(
    async () => {
      const { status } = await kube.get<{ status?: object }>(resourcePath(Place, 'default', name))
      return status ?? false
    },
    { what: `${name} has a status` },
  )
