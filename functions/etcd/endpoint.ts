import type { EtcdEndpoint, EtcdTls } from '#etcd'
import { Secret } from '#sdk'
import { newestOf, storedAuthority } from './authorities.ts'
import { issued, validity } from './certificates.ts'
import { type EtcdRun, secretsOf } from './cluster.ts'
import { CLIENT_PORT, hostOf } from './names.ts'
import type { PodObject } from './parts.ts'
import { takesTls } from './pod.ts'
import { clientTls } from './tls.ts'

type ClientTls = Omit<EtcdTls, 'servername'>

/** A certificate of the authority with this number. */
export interface Newcomer {
  number: number
  tls: ClientTls
}

/** Returns the endpoint with the address of the pod, so that the function needs no cluster DNS. */
export function endpointOf(run: EtcdRun, pod: PodObject, other?: ClientTls): EtcdEndpoint {
  const { podIP: address = '' } = pod.status ?? {}
  const host = `${address.includes(':') ? `[${address}]` : address}:${CLIENT_PORT}`
  if (!takesTls(pod)) return { url: `http://${host}` }
  const tls = other ?? clientTls(run.object, secretsOf(run)) ?? { ca: '' }
  return { url: `https://${host}`, tls: { ...tls, servername: hostOf(run.object, pod.metadata.name) } }
}

/**
 * Returns a certificate of the newest authority while members learn to trust it. A member that accepts the certificate
 * trusts that authority for clients and for peers, because its process has read both from one file.
 */
export function newcomerTls(run: EtcdRun): Newcomer | undefined {
  const { object } = run
  const state = object.status.TLS
  const usual = clientTls(object, secretsOf(run))
  if ((state?.phase !== 'Trusting' && state?.phase !== 'Trusted') || usual === undefined) return undefined
  const number = newestOf(state)
  const issuer = storedAuthority(object, run.owned(Secret), number)?.issuer
  if (issuer === undefined) return undefined
  const during = validity(state.begunAt, object.spec.TLS?.auto?.certificateDays ?? 0)
  const { 'etcd-client.crt': cert = '', 'etcd-client.key': key = '' } = issued(object, 'operator', issuer, during)
  return { number, tls: { ca: usual.ca, cert, key } }
}
