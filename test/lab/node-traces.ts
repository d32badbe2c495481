import { readdir, readFile } from 'node:fs/promises'
import { run } from '../../packages/lab/node/command.ts'
import { readKernelSettings } from '../../packages/lab/node/network.ts'

/** Returns everything that nodes can leave on a machine. It is equal on a machine before and after a node. */
export async function tracesOfNodes(): Promise<Record<string, string[]>> {
  return {
    processes: await processes(),
    mounts: lines(await readFile('/proc/self/mounts', 'utf8'), /fairlead-/),
    links: lines(await run('ip', ['-o', 'link']), /fairlead|veth/),
    addressesAndRoutes: lines(await run('ip', ['route', 'show', 'table', 'all']), /10\.(246|98)\./),
    packetRules: lines(
      await run('nft', ['list', 'ruleset']),
      /table \S+ (fairlead|kube-proxy|cni_hostport)|10\.(246|98)\./,
    ),
    networkNamespaces: lines(await run('ip', ['netns', 'list']), /./),
    cgroups: lines(await run('find', ['/sys/fs/cgroup', '-type', 'd', '-name', 'fairlead*']), /./),
    folders: (await Promise.all(['/run', '/run/containerd', '/var/lib', '/var/lib/cni/results'].map(entries))).flat(),
    logs: await entries('/var/log/containers'),
    settings: Object.entries(await readKernelSettings()).map((pair) => pair.join(' = ')),
  }
}

/** The servers of other tests on this machine are not a node's. */
async function processes(): Promise<string[]> {
  const names = /^(kubelet|kube-proxy|coredns|containerd|containerd-shim|registry|runc|sleep 1000000000)/
  const ids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  // One that ends meanwhile is none.
  const all = await Promise.all(ids.map((id) => readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '')))
  return all
    .map((words) => words.replaceAll('\0', ' ').trim())
    .map((args) => args.replace(/^\S*\//, ''))
    .filter((args) => names.test(args) && !args.includes('/fl-registry-'))
}

async function entries(folder: string): Promise<string[]> {
  const names = await readdir(folder).catch(() => [])
  return names.filter((name) => /fairlead|kubelet|cni|containerd|\.log$/.test(name)).map((name) => `${folder}/${name}`)
}

function lines(text: string, pattern: RegExp): string[] {
  return text.split('\n').filter((line) => line !== '' && pattern.test(line))
}
