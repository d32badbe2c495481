import { run } from '../../packages/lab/node/command.ts'
import { pidWith } from './etcd-faults.ts'

/** The port of clients, and so of the function. A kubelet asks another one. */
const CLIENT_PORT = 2379

/**
 * Cuts a member off from all clients and from members with these addresses, both ways. The rules are in the network
 * namespace of its pod, and end with it. A second call replaces the first one.
 */
export async function cutOff(member: string, addresses: readonly string[]): Promise<void> {
  const others = `{ ${addresses.join(', ')} }`
  const rules = `
    table ip partition {
      chain from {
        type filter hook input priority 0
        iifname != "lo" tcp dport ${CLIENT_PORT} drop
        ip saddr ${others} drop
      }
      chain to {
        type filter hook output priority 0
        ip daddr ${others} drop
      }
    }`
  await heal(member)
  await within(member, ['nft', '-f', '-'], rules)
}

export async function heal(member: string): Promise<void> {
  await within(member, ['nft', '-f', '-'], 'table ip partition {}\ndelete table ip partition')
}

/** Writes as a client beside the member does, which reaches no other one. */
export async function putBeside(member: string, key: string, value: string): Promise<void> {
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  const body = JSON.stringify({ key: base64(key), value: base64(value) })
  const call = `const { ok } = await fetch('http://127.0.0.1:${CLIENT_PORT}/v3/kv/put', { method: 'POST', body: '${body}' })
    if (!ok) process.exit(1)`
  await within(member, [process.execPath, '--input-type=module', '-e', call])
}

async function within(member: string, command: readonly string[], input = ''): Promise<void> {
  await run('nsenter', [`--target=${pidWith(`--name=${member}`)}`, '--net', ...command], { input })
}
