import type { z } from 'zod'
import type { KeptStatus, KubeObject } from '#contracts'
import type { ObservedBy, Resource } from '#sdk'

/** An object as a cluster in memory has it: nobody has filled in defaults, and at first there is no status. */
export type StoredBy<K> =
  K extends Resource<infer Spec, infer Status>
    ? Pick<KubeObject, 'apiVersion' | 'kind' | 'metadata'> & {
        spec: z.input<Spec>
        status?: Partial<z.output<Status>> & KeptStatus
      }
    : unknown extends ObservedBy<K>
      ? KubeObject
      : ObservedBy<K>
