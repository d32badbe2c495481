import { ApiConnectionError, ApiError } from '#kube'

/** Why the API server could not be asked, for a person who may know nothing of it. */
export function reasonOf(error: unknown): string {
  if (error instanceof ApiConnectionError) return 'the API server does not answer; try again'
  if (error instanceof ApiError && error.code === 403)
    return 'the console has no right to ask the API server; its account needs the ClusterRole fairlead-console'
  return 'the API server has answered with an error; try again'
}
