import { ConflictError, type KubeObject } from '#contracts'
import { ApiError, isAlreadyExists, isNotFound, type Status } from '#kube'
import { called, type Write } from '#reconcile'
import { isStale } from '../errors.ts'

export const moved = (object: KubeObject, cause: unknown): ConflictError =>
  new ConflictError(`${called(object)} has changed since it was observed`, { cause })

export const isNameTaken = (write: Write, error: unknown): boolean =>
  isAlreadyExists(error) || (write.verb === 'apply' && write.observed === undefined && isStale(error))

/** A missing status subresource is NotFound too, but without the object's name. */
export const isObjectGone = (error: unknown, { metadata }: KubeObject): boolean =>
  isNotFound(error) && error instanceof ApiError && error.details.name === metadata.name

export const isObject = (answer: KubeObject | Status | undefined): answer is KubeObject =>
  answer !== undefined && answer.kind !== 'Status'

/** The answer to a delete may be the object as it was last: without grace period and finalizers it is gone. */
export const isStillThere = (answer: KubeObject | Status | undefined): answer is KubeObject =>
  isObject(answer) &&
  answer.metadata.deletionTimestamp !== undefined &&
  (answer.metadata['deletionGracePeriodSeconds'] !== 0 || (answer.metadata.finalizers ?? []).length > 0)
