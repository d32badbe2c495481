import { run } from './command.ts'
import type { NodeOptions } from './options.ts'

/** Creates the objects, or makes them what they should be. */
export async function applyObjects(options: NodeOptions, objects: object[]): Promise<void> {
  const list = { apiVersion: 'v1', kind: 'List', items: objects }
  await kubectl(options, ['apply', '--server-side', '--field-manager=fairlead-local', '-f', '-'], JSON.stringify(list))
}

/** Resolves when the node has said that it is ready for pods. */
export async function nodeReady(options: NodeOptions, name: string): Promise<void> {
  await kubectl(options, ['wait', '--for=create', `node/${name}`, '--timeout=60s'])
  await kubectl(options, ['wait', '--for=condition=Ready', `node/${name}`, '--timeout=60s'])
}

async function kubectl({ binaries, kubeconfig, dir }: NodeOptions, args: string[], input = ''): Promise<void> {
  await run(binaries('kubectl'), [`--kubeconfig=${kubeconfig}`, `--cache-dir=${dir}/kubectl-cache`, ...args], { input })
}
