import { UsageError } from '#process/exit'

/** `registry/repository:tag@digest`, as in Kubernetes manifests. */
export interface Reference {
  /** The host, with its port if it has one; default: `docker.io`. */
  registry: string
  repository: string
  tag?: string
  /** `sha256:…` */
  digest?: string
}

const REFERENCE = /^(?<name>[^@:]+(?::\d+\/[^@:]+)?)(?::(?<tag>\w[\w.-]{0,127}))?(?:@(?<digest>sha256:[0-9a-f]{64}))?$/
const HOST = /^[a-z\d][a-z\d.-]*(?::\d+)?$/i
const REPOSITORY = /^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$/

export function parseReference(text: string): Reference {
  const { name = '', tag, digest } = REFERENCE.exec(text)?.groups ?? {}
  const parts = name.split('/')
  const isHost = parts.length > 1 && /[.:]|^localhost$/.test(parts[0] ?? '')
  const registry = (isHost && parts.shift()) || 'docker.io'
  if (registry === 'docker.io' && parts.length === 1) parts.unshift('library')
  const repository = parts.join('/')
  if (!HOST.test(registry) || !REPOSITORY.test(repository))
    throw new UsageError(
      `"${text}" is not a reference of an image: write it like registry.example.com/team/app:v1, in lower case`,
    )
  return { registry, repository, ...(tag !== undefined && { tag }), ...(digest !== undefined && { digest }) }
}

/** Returns the reference in the format of Kubernetes. */
export const nameOf = ({ registry, repository, tag, digest }: Reference): string =>
  `${registry}/${repository}${tag === undefined ? '' : `:${tag}`}${digest === undefined ? '' : `@${digest}`}`
