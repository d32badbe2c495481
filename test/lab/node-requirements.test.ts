import { describe, expect, it } from 'vitest'
import { cgroupLayout, unifiedProblem } from '../../packages/lab/node/cgroups.ts'
import { isInUse } from '../../packages/lab/node/claim.ts'
import { mountPoints } from '../../packages/lab/node/cleanup.ts'
import { kwokNotice } from '../../packages/lab/node/kwok.ts'
import { filterChains, ourRules } from '../../packages/lab/node/network.ts'
import {
  distributions,
  isStaticProgram,
  judge,
  missingCapabilities,
  type NodeFacts,
} from '../../packages/lab/node/requirements.ts'
import { nameServers } from '../../packages/lab/node/services.ts'

const able: NodeFacts = {
  platform: 'linux',
  root: true,
  missingCapabilities: [],
  distributions: ['debian'],
  commands: {
    cc: '/usr/bin/cc',
    nft: '/usr/sbin/nft',
    ip: '/usr/sbin/ip',
    mount: '/usr/bin/mount',
    umount: '/usr/bin/umount',
    busybox: '/usr/bin/busybox',
  },
  staticBusybox: true,
  cgroups: { version: 2, trees: ['/sys/fs/cgroup'] },
  foreignNode: false,
}
const { nft: _, cc: __, ...withoutNftAndCc } = able.commands

describe('a real node', () => {
  it('is possible on Linux as root with everything there', () => {
    expect(judge(able)).toEqual({ ok: true })
  })

  it.each<[string, Partial<NodeFacts>, string[], boolean]>([
    ['elsewhere than on Linux', { platform: 'darwin', root: false, commands: {} }, ['Linux'], false],
    ['as a user', { root: false, missingCapabilities: ['CAP_SYS_ADMIN'] }, ['root rights'], false],
    [
      'as root of a container',
      { missingCapabilities: ['CAP_NET_ADMIN', 'CAP_SYS_ADMIN'] },
      ['the rights of a real root (CAP_NET_ADMIN, CAP_SYS_ADMIN)'],
      false,
    ],
    [
      'on Debian without nft and a compiler',
      { commands: withoutNftAndCc },
      ['a C compiler (cc)', 'nft (nftables)'],
      true,
    ],
    [
      'on Ubuntu with a busybox that needs libraries',
      { distributions: ['ubuntu', 'debian'], staticBusybox: false },
      ['a static busybox'],
      true,
    ],
    ['on Fedora without nft', { distributions: ['fedora'], staticBusybox: false }, ['a static busybox'], false],
    [
      'as a user on Debian without nft',
      { root: false, commands: withoutNftAndCc },
      ['root rights', 'a C compiler (cc)', 'nft (nftables)'],
      false,
    ],
    [
      'where cgroups cannot be made',
      { cgroups: { version: 2, trees: [], problem: 'a writable cgroup file system' } },
      ['a writable cgroup file system'],
      false,
    ],
    [
      'beside another Kubernetes node',
      { foreignNode: true },
      ['room for a second Kubernetes node (another kube-proxy has its rules here)'],
      false,
    ],
  ])('%s: says what is missing, and whether it can be installed', (_name, facts, missing, installable) => {
    expect(judge({ ...able, ...facts })).toEqual({ ok: false, missing, installable })
  })

  it('is replaced by KWOK with one line that names what is missing and what that costs', () => {
    const notice = kwokNotice(['root rights', 'nft (nftables)'])
    expect(notice).toContain('this machine lacks root rights, nft (nftables)')
    expect(notice).toMatch(/pods .* run nothing, so there are no logs/)
    expect(notice).not.toContain('\n')
  })
})

describe('facts', () => {
  it('know the capabilities that a process has not', () => {
    expect(missingCapabilities('Name:\tnode\nCapEff:\t000001ffffffffff\n')).toEqual([])
    expect(missingCapabilities('CapEff:\t00000000a80425fb\n')).toEqual([
      'CAP_NET_ADMIN',
      'CAP_SYS_PTRACE',
      'CAP_SYS_ADMIN',
    ])
    expect(missingCapabilities('')).toHaveLength(4)
  })

  it('know a distribution and what it is like', () => {
    expect(distributions('ID=debian\nVERSION_ID="12"\n')).toEqual(['debian'])
    expect(distributions('NAME="Mint"\nID=linuxmint\nID_LIKE="ubuntu debian"\n')).toEqual([
      'linuxmint',
      'ubuntu',
      'debian',
    ])
  })

  it('know a static program by having no loader', () => {
    expect(isStaticProgram(elf([1, 1, 4]))).toBe(true)
    expect(isStaticProgram(elf([6, 3, 1]))).toBe(false)
    expect(isStaticProgram(Buffer.from('#!/bin/sh\n'))).toBe(false)
    expect(isStaticProgram(elf([1]).subarray(0, 70))).toBe(false)
  })
})

describe('cgroups', () => {
  const v1 = ['cpu', 'cpuacct', 'cpuset', 'memory', 'devices', 'freezer', 'pids']
    .map((name) => `cgroup /sys/fs/cgroup/${name} cgroup rw,relatime,${name} 0 0`)
    .join('\n')

  it('of version 1 are one tree for each controller, with the unified one beside', () => {
    const hybrid = cgroupLayout(`${v1}\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n`)
    expect(hybrid).toMatchObject({ version: 1, trees: expect.arrayContaining(['/sys/fs/cgroup/unified']) })
    expect(hybrid.problem).toBeUndefined()
  })

  it('of version 1 must have all controllers that a kubelet counts on', () => {
    const layout = cgroupLayout(v1.replace(/^.*memory.*$/m, ''))
    expect(layout.problem).toBe('the cgroup controllers memory')
  })

  it('of version 2 are one tree', () => {
    const line = 'cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0'
    expect(cgroupLayout(line)).toEqual({ version: 2, trees: ['/sys/fs/cgroup'] })
  })

  it('must be there and writable', () => {
    expect(cgroupLayout('').problem).toBe('a mounted cgroup file system')
    expect(cgroupLayout('cgroup2 /sys/fs/cgroup cgroup2 ro,relatime 0 0').problem).toBe('a writable cgroup file system')
  })

  it('of version 2 must let their controllers be handed on', () => {
    const controllers = ['cpuset', 'cpu', 'io', 'memory', 'pids']
    const top = { controllers, enabled: [], isMachineRoot: false, hasProcesses: true }
    expect(unifiedProblem({ ...top, isMachineRoot: true })).toBeUndefined()
    expect(unifiedProblem({ ...top, hasProcesses: false })).toBeUndefined()
    expect(unifiedProblem({ ...top, enabled: controllers })).toBeUndefined()
    expect(unifiedProblem(top)).toMatch(/handed on/)
    expect(unifiedProblem({ ...top, controllers: ['cpu', 'pids'] })).toBe('the cgroup controllers cpuset, memory')
  })
})

describe("a machine's one node", () => {
  const claim = { dir: '/a', startedBy: { pid: 1, startTime: '1' }, settings: {} }

  it.each([
    { ephemeral: false, starterRuns: true, nodeWorks: false, inUse: true },
    { ephemeral: false, starterRuns: false, nodeWorks: true, inUse: true },
    { ephemeral: false, starterRuns: false, nodeWorks: false, inUse: false },
    { ephemeral: true, starterRuns: true, nodeWorks: true, inUse: true },
    { ephemeral: true, starterRuns: false, nodeWorks: true, inUse: false },
  ])('$ephemeral, its starter runs: $starterRuns, it works: $nodeWorks → in use: $inUse', ({ inUse, ...row }) => {
    expect(isInUse({ ...claim, ephemeral: row.ephemeral }, row)).toBe(inUse)
  })
})

describe("a machine's firewalls", () => {
  const chain = { family: 'ip', table: 'filter', name: 'FORWARD', type: 'filter', hook: 'forward' }
  const rule = { family: 'ip', table: 'filter', chain: 'FORWARD', handle: 7 }
  const listing = (...nftables: object[]) => JSON.stringify({ nftables: [{ metainfo: {} }, ...nftables] })

  it('are the filter chains that see forwarded or incoming packets of IPv4', () => {
    const inet = { ...chain, family: 'inet', name: 'filter_INPUT', hook: 'input' }
    const others = [
      { ...chain, family: 'ip6' },
      { ...chain, type: 'nat' },
      { ...chain, hook: 'output' },
      { family: 'ip', table: 'filter', name: 'DOCKER' },
    ]
    const found = filterChains(listing(...[chain, inet, ...others].map((each) => ({ chain: each }))))
    expect(found.map(({ name }) => name)).toEqual(['FORWARD', 'filter_INPUT'])
  })

  it('get back the rules that they had', () => {
    const ours = { ...rule, handle: 8, comment: 'fairlead-node' }
    const all = [{ chain }, { rule }, { rule: { ...rule, comment: 'mine' } }, { rule: ours }]
    expect(ourRules(listing(...all))).toEqual([ours])
  })
})

it('reads mount points with spaces', () => {
  const line = String.raw`36 35 98:0 / /mnt/a\040b\134c rw,noatime - ext3 /dev/root rw`
  expect(mountPoints(line)).toEqual([String.raw`/mnt/a b\c`])
})

it('gives pods the name servers without the search domains', () => {
  expect(nameServers('# x\nsearch corp.example\nnameserver 10.0.0.2\noptions ndots:1\nnameserver fd00::1\n')).toBe(
    'nameserver 10.0.0.2\nnameserver fd00::1\n',
  )
})

/** The start of a 64-bit ELF file with program headers of these types. */
function elf(types: number[]): Buffer {
  const file = Buffer.alloc(64 + types.length * 56)
  file.write('\x7fELF\x02\x01', 'latin1')
  file.writeBigUInt64LE(64n, 32)
  file.writeUInt16LE(56, 54)
  file.writeUInt16LE(types.length, 56)
  types.forEach((type, index) => file.writeUInt32LE(type, 64 + index * 56))
  return file
}
