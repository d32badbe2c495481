import type { z } from 'zod'
import type { KeptStatus, KubeObject } from '#contracts'
import type { ObservedBy, Resource } from '#sdk'

/** An object as a cluster in memory stores it: without defaults, and at first without a status. */
export type StoredBy<K> =
  K extends Resource<infer Spec, infer Status>
    ? Pick<KubeObject, 'apiVersion' | 'kind' | 'metadata'> & {
        spec: z.input<Spec>
        status?: Partial<z.output<Status>> & KeptStatus
      }
    : unknown extends ObservedBy<K>
      ? KubeObject
      : ObservedBy<K>
