import { existsSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { resolve } from 'node:path'
import type { KubeClient } from '#kube'
import { allEnded } from '#primitives'
import { identify, isAlive } from '../lock.ts'
import { freePorts } from '../ports.ts'
import { ProcessGroup } from '../processes.ts'
import { isInUse, NodeTakenError, readClaim, withMachine, writeClaim } from './claim.ts'
import { nodeWorks, removeNode, removeStrays } from './cleanup.ts'
import { administrator, applyObjects, nodeReady } from './kwok.ts'
import { createNetwork, readKernelSettings } from './network.ts'
import { NODE_IP, NODE_NAME, type NodeOptions, type NodePaths, nodePaths } from './options.ts'
import { addBaseImages, startRegistry } from './registry.ts'
import {
  dnsObjects,
  PROXY_OBJECTS,
  startContainerd,
  startDns,
  startKubelet,
  startProxy,
  writeResolvConf,
} from './services.ts'

/** A node with its address and a starting containerd; startNode() makes it run pods. */
export interface PreparedNode {
  paths: NodePaths
  ports: Record<(typeof PORTS)[number], number>
  registryUrl: string
}

export interface Node {
  name: string
  /** The URL of the registry from which containerd pulls all images; addImage() adds images. */
  registryUrl: string
}

const PORTS = ['registry', 'kubelet', 'proxyHealth', 'proxyMetrics', 'dns'] as const

/**
 * Assigns the machine's node to `options.dir`, and makes the preparations that need no API server: address, packet
 * rules, registry, containerd. First removes the remains of crashed nodes. Throws NodeTakenError while another cluster
 * has the node.
 */
export async function prepareNode(options: NodeOptions): Promise<PreparedNode> {
  await withMachine(() => takeMachine(options))
  const paths = nodePaths(options.dir)
  await mkdir(paths.run, { recursive: true })
  await mkdir(paths.state, { recursive: true })
  await writeResolvConf(paths)
  const ports = await nodePorts()
  const registryUrl = `http://${NODE_IP}:${ports.registry}`
  await startRegistry(options, paths, ports.registry)
  await startContainerd(options, paths, registryUrl)
  return { paths, ports, registryUrl }
}

async function takeMachine({ dir, ephemeral = false }: NodeOptions): Promise<void> {
  const startedBy = identify(process.pid)
  if (startedBy === undefined) throw new Error('/proc does not show this very process: a node needs a mounted /proc')
  await clearLeftBehind(resolve(dir))
  await removeStrays()
  await writeClaim({ dir, startedBy, ephemeral, settings: await readKernelSettings() })
  await createNetwork()
}

/** Stops an unused node of another cluster, together with that cluster. */
async function clearLeftBehind(own: string): Promise<void> {
  const holder = await nodeHolder()
  if (holder !== undefined && holder !== own) throw new NodeTakenError(holder)
  const claim = await readClaim()
  if (claim === undefined) return
  await removeNode(claim.dir)
  if (claim.dir !== own && existsSync(claim.dir)) await new ProcessGroup(claim.dir).stopAll()
}

/** Resolves when the node is Ready, its Services work (if it has them), and `image: busybox` can be pulled. */
export async function startNode(options: NodeOptions, prepared: PreparedNode): Promise<Node> {
  const { paths, ports, registryUrl } = prepared
  const { processes } = options
  await using kube = await administrator(options)
  await allEnded([
    startKubelet(options, paths, ports.kubelet),
    options.hasServices ? startServices(options, prepared, kube) : undefined,
    fillRegistry(options, registryUrl),
  ])
  await nodeReady(kube, processes, NODE_NAME)
  return { name: NODE_NAME, registryUrl }
}

async function startServices(options: NodeOptions, { paths, ports }: PreparedNode, kube: KubeClient): Promise<void> {
  await allEnded([
    startProxy(options, paths, { health: ports.proxyHealth, metrics: ports.proxyMetrics }),
    startDns(options, paths, ports.dns),
    applyObjects(kube, [...PROXY_OBJECTS, ...dnsObjects(ports.dns)]),
  ])
  const isHealthy = () => answers(`http://${NODE_IP}:${ports.proxyHealth}/healthz`)
  await options.processes.waitFor('kube-proxy', isHealthy, 120_000)
}

async function fillRegistry({ processes }: NodeOptions, registryUrl: string): Promise<void> {
  await processes.waitFor('the image registry', () => answers(`${registryUrl}/v2/`), 20_000)
  await addBaseImages(registryUrl)
}

async function answers(url: string): Promise<boolean> {
  return fetch(url, { signal: AbortSignal.timeout(1000) }).then(
    (response) => response.ok,
    () => false,
  )
}

/**
 * Returns free ports. The address belongs to the node, but a program that listens on all addresses may use one of its
 * ports.
 */
async function nodePorts(): Promise<PreparedNode['ports']> {
  const ports = await freePorts(PORTS.length, [NODE_IP])
  return Object.fromEntries(PORTS.map((name, index) => [name, ports[index]])) as PreparedNode['ports']
}

/** Returns the folder of the cluster that has this machine's node and still needs it. */
export async function nodeHolder(): Promise<string | undefined> {
  const claim = await readClaim()
  if (claim === undefined) return undefined
  const seen = { starterRuns: isAlive(claim.startedBy), nodeWorks: await nodeWorks(claim.dir) }
  return isInUse(claim, seen) ? claim.dir : undefined
}
