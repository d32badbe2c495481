import type { ConditionUpdate } from '#contracts'
import type { ClaimObject, PodObject, SecretObject } from '../../../../functions/etcd/operator/parts.ts'
import type { EtcdEffect } from '../../../../functions/etcd/operator/seen.ts'

/** What the API server has. Objects are never changed in place: whoever has read one keeps it as it was. */
export interface Stored {
  status: Record<string, unknown>
  conditions: Record<string, Omit<ConditionUpdate, 'type'>>
  pods: Map<string, PodObject>
  claims: Map<string, ClaimObject>
  secrets: Map<string, SecretObject>
}

export const emptyStore = (): Stored => ({
  status: {},
  conditions: {},
  pods: new Map(),
  claims: new Map(),
  secrets: new Map(),
})

export const copyOf = ({ status, conditions, pods, claims, secrets }: Stored): Stored => ({
  status: { ...status },
  conditions,
  pods: new Map(pods),
  claims: new Map(claims),
  secrets: new Map(secrets),
})

/** A point of a run at which something may happen: before a read, before each write, and before the effect. */
export type Point = { at: 'read' } | { at: 'write'; what: string } | { at: 'effect'; effect: EtcdEffect }

/** The process dies here. */
export class Crash extends Error {}
