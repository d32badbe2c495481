import { type Etcd, EtcdError } from '#etcd'
import { ROOT } from './certificates.ts'

type Options = Parameters<Etcd['call']>[2]

/** Undefined: the member does not answer. */
export const isAuthEnabled = (etcd: Etcd, options: Options): Promise<boolean | undefined> =>
  etcd.call('authStatus', {}, options).then(
    ({ enabled }) => enabled,
    () => undefined,
  )

/**
 * Enables authentication. A call whose effect exists already counts as successful, so that the sequence may be repeated
 * after any of them.
 */
export async function enableAuth(etcd: Etcd, options: Options): Promise<void> {
  await etcd.call('userAdd', { name: ROOT, password: '', options: { no_password: true } }, options).catch(unlessDone)
  await etcd.call('roleAdd', { name: ROOT }, options).catch(unlessDone)
  await etcd.call('userGrantRole', { user: ROOT, role: ROOT }, options)
  await etcd.call('authEnable', {}, options)
}

export async function disableAuth(etcd: Etcd, options: Options): Promise<void> {
  await etcd.call('authDisable', {}, options).catch(unlessDone)
}

function unlessDone(error: unknown): void {
  if (!(error instanceof EtcdError) || !/already exists|authentication is not enabled/.test(error.text)) throw error
}
