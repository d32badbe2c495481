import { ConflictError, type KubeObject } from '#contracts'
import { ApiError, isAlreadyExists, isNotFound, type Status } from '#kube'
import { called, type Write } from '#reconcile'
import { isStale } from '../errors.ts'

export const moved = (object: KubeObject, cause: unknown): ConflictError =>
  new ConflictError(`${called(object)} has changed since it was observed`, { cause })

export const isNameTaken = (write: Write, error: unknown): boolean =>
  isAlreadyExists(error) || (write.verb === 'apply' && write.observed === undefined && isStale(error))

/**
 * Whether the object itself is gone. For a missing status subresource the API server answers NotFound too, but without
 * the object's name.
 */
export const isObjectGone = (error: unknown, { metadata }: KubeObject): boolean =>
  isNotFound(error) && error instanceof ApiError && error.details.name === metadata.name

export const isObject = (answer: KubeObject | Status | undefined): answer is KubeObject =>
  answer !== undefined && answer.kind !== 'Status'

/**
 * Whether the answer to a delete is an object that still exists. Without a grace period and finalizers, the answer is
 * the last state of an object that is gone.
 */
export const isStillThere = (answer: KubeObject | Status | undefined): answer is KubeObject =>
  isObject(answer) &&
  answer.metadata.deletionTimestamp !== undefined &&
  (answer.metadata['deletionGracePeriodSeconds'] !== 0 || (answer.metadata.finalizers ?? []).length > 0)
