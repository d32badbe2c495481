import { existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { allEnded, unlessAborted } from '#primitives'
import {
  apiServerBinaries,
  type BinaryName,
  controlPlaneBinaries,
  kwokBinaries,
  natsBinaries,
  nodeBinaries,
  serviceBinaries,
  toolBinaries,
} from './binaries.ts'
import { type BinaryPaths, ensureBinaries, unbuiltBinaries } from './build.ts'
import {
  CONTROL_PLANE_PORTS,
  type ControlPlaneOptions,
  startApiServer,
  startControllers,
  startEtcd,
} from './control-plane.ts'
import { type Nats, startNatsServers } from './nats.ts'
import {
  NODE_IP,
  type Node,
  type NodeOptions,
  type PreparedNode,
  prepareNode,
  startKwok,
  startNode,
} from './node/index.ts'
import { choiceAfter, chooseNode, type NodeChoice, type WantedNode } from './node-choice.ts'
import { type Cluster, openCluster } from './open-cluster.ts'
import { createPki } from './pki.ts'
import { freePorts, requirePort } from './ports.ts'
import { ProcessGroup } from './processes.ts'
import { type Progress, silentProgress, withTask } from './progress.ts'
import { stopWithThisProcess } from './reaper.ts'
import { type ClusterState, type NodeKind, writeState } from './state.ts'
import { stopCluster } from './stop.ts'

export interface ClusterOptions {
  /**
   * Contains data, logs, certificates and process ids. A cluster that runs in it is stopped, and its data is removed.
   */
  dir: string
  /** Default `none`: pods stay Pending. */
  node?: WantedNode
  /** Default true. */
  nats?: boolean
  /** Fixed ports. Default: free ones. */
  ports?: { nats?: number; apiServer?: number }
  /**
   * Whether to start the controller manager and the scheduler. Default true; without them there is no garbage
   * collection and no scheduling.
   */
  controllers?: boolean
  /**
   * Leaves out kube-proxy, DNS and kubectl, which take a third of the first build. Pods cannot call Services then.
   * Default false.
   */
  minimal?: boolean
  /** Record every write, see Cluster.audit(). */
  audit?: boolean
  /** Room for a million objects: etcd may store 8 GiB, and it and kube-apiserver may use 8 GiB of memory each. */
  isLarge?: boolean
  /** Stops the servers when this process ends, even by kill -9. Otherwise they run until stopCluster(dir). */
  dieWithParent?: boolean
  /** Removes the folder with the servers. After a failed start it remains, for its logs. */
  temporary?: boolean
  progress?: Progress
  /** Called before programs are built. */
  onBuild?: () => void
  /** Cancels a start in progress, and stops the servers that it has started. */
  signal?: AbortSignal
}

/** Whether {@link startCluster} with this kind of node finds all programs, and builds none. */
export async function isBuilt(node: NodeKind, options: Pick<ClusterOptions, 'nats' | 'minimal'>): Promise<boolean> {
  return (await unbuiltBinaries(binariesFor(node, options))).length === 0
}

/** Starts real servers on this machine, which listen on loopback, or on the node's address if there is a node. */
export async function startCluster(options: ClusterOptions): Promise<Cluster> {
  const dir = resolve(options.dir)
  takeFolder(dir)
  await stopCluster(dir)
  clearFolder(dir)
  const removeDir = options.temporary ?? false
  const reaper = options.dieWithParent ? stopWithThisProcess(dir, { removeDir }) : undefined
  const starting = compose(dir, options)
  try {
    await unlessAborted(starting, options.signal)
    return {
      ...openCluster(dir),
      async stop() {
        await stopCluster(dir, { removeDir })
        reaper?.release()
      },
    }
  } catch (error) {
    await stopCluster(dir)
    // A cancelled start may still be starting one more server.
    await starting.then(undefined, () => {})
    await stopCluster(dir)
    reaper?.release()
    throw error
  }
}

async function compose(dir: string, options: ClusterOptions): Promise<void> {
  const { progress = silentProgress } = options
  const build: Build = (choice) => ensureBinaries(binariesFor(choice.kind, options), progress, options)
  const choice = await chooseNode(options.node ?? 'none', progress)
  const binaries = await build(choice)
  const failed = new AbortController()
  const processes = new ProcessGroup(dir, AbortSignal.any([failed.signal, ...(options.signal ? [options.signal] : [])]))
  const orEndAll = async <T>(work: Promise<T>): Promise<T> =>
    work.catch((error: unknown) => {
      failed.abort(error)
      throw error
    })
  const [kubernetes, nats] = await allEnded([
    orEndAll(startKubernetes({ dir, options, progress, processes, binaries, build }, choice)),
    options.nats === false ? undefined : orEndAll(startNatsOf(processes, binaries, options, progress)),
  ])
  if (hasTools(options)) linkTools(dir, binaries)
  writeState(dir, {
    ...kubernetes,
    ...(nats ? { natsUrl: nats.url, natsServers: nats.servers } : {}),
    startedAt: new Date().toISOString(),
  })
}

type Build = (choice: NodeChoice) => Promise<BinaryPaths>

interface Scene {
  dir: string
  options: ClusterOptions
  progress: Progress
  processes: ProcessGroup
  binaries: BinaryPaths
  build: Build
}

type Kubernetes = Pick<ClusterState, 'kubeconfig' | 'apiServer' | 'node' | 'registryUrl'>

async function startKubernetes(scene: Scene, wanted: NodeChoice): Promise<Kubernetes> {
  const { dir, options, progress, processes } = scene
  const pki = await createPki(join(dir, 'pki'))
  const ports = await controlPlanePorts(options.ports?.apiServer)
  const nodeOptions: NodeOptions = {
    ...scene,
    pki,
    apiServer: { host: NODE_IP, port: ports.apiServer },
    kubeconfig: join(dir, 'kubeconfig'),
    ephemeral: options.dieWithParent ?? false,
    hasServices: options.minimal !== true,
  }
  const taken = await takeNode(scene, nodeOptions, wanted)
  const controlPlaneOptions: ControlPlaneOptions = {
    dir,
    processes,
    pki,
    binaries: taken.binaries,
    host: taken.prepared ? NODE_IP : '127.0.0.1',
    ports,
    controllers: options.controllers ?? true,
    audit: options.audit ?? false,
    isLarge: options.isLarge ?? false,
  }
  const controlPlane = await withTask(progress, 'kube-apiserver', async () => {
    await startEtcd(controlPlaneOptions)
    const started = await startApiServer(controlPlaneOptions)
    await started.ready()
    return started
  })
  const [, node] = await allEnded([
    withTask(progress, 'controllers', async () => {
      if (controlPlaneOptions.controllers) await startControllers(controlPlaneOptions, controlPlane.server)
      await controlPlane.complete()
    }),
    startNodeOf({ ...nodeOptions, binaries: taken.binaries }, taken),
  ])
  return {
    kubeconfig: nodeOptions.kubeconfig,
    apiServer: controlPlane.server,
    node: taken.choice.kind,
    ...(node ? { registryUrl: node.registryUrl } : {}),
  }
}

interface TakenNode {
  choice: NodeChoice
  prepared?: PreparedNode
  binaries: BinaryPaths
}

async function takeNode(
  { options, build, binaries }: Scene,
  nodeOptions: NodeOptions,
  choice: NodeChoice,
): Promise<TakenNode> {
  if (choice.kind !== 'real') return { choice, binaries }
  try {
    return { choice, prepared: await prepareNode(nodeOptions), binaries }
  } catch (error) {
    const instead = choiceAfter(error, options.node ?? 'none')
    return { choice: instead, binaries: await build(instead) }
  }
}

async function startNodeOf(options: NodeOptions, { choice, prepared }: TakenNode): Promise<Node | undefined> {
  if (choice.kind === 'kwok') await withTask(options.progress, 'KWOK', () => startKwok(options, choice.missing))
  return prepared && withTask(options.progress, 'node', () => startNode(options, prepared))
}

function startNatsOf(
  processes: ProcessGroup,
  binaries: BinaryPaths,
  { ports }: ClusterOptions,
  progress: Progress,
): Promise<Nats> {
  const port = ports?.nats === undefined ? {} : { port: ports.nats }
  return withTask(progress, 'nats-server', () => startNatsServers(processes, binaries('nats-server'), port))
}

const hasTools = ({ controllers = true, minimal = false }: Parts): boolean => controllers && !minimal

type Parts = Pick<ClusterOptions, 'nats' | 'controllers' | 'minimal'>

function binariesFor(node: NodeKind, options: Parts): BinaryName[] {
  const { nats = true, controllers = true, minimal = false } = options
  const ofNode = { none: [], real: [...nodeBinaries, ...(minimal ? [] : serviceBinaries)], kwok: kwokBinaries }
  return [
    ...(nats ? natsBinaries : []),
    ...(controllers ? controlPlaneBinaries : apiServerBinaries),
    ...(hasTools(options) ? toolBinaries : []),
    ...ofNode[node],
  ]
}

async function controlPlanePorts(apiServer: number | undefined): Promise<ControlPlaneOptions['ports']> {
  const ports = await freePorts(CONTROL_PLANE_PORTS.length)
  const found = Object.fromEntries(CONTROL_PLANE_PORTS.map((name, index) => [name, ports[index]]))
  if (apiServer !== undefined) found['apiServer'] = await requirePort(apiServer, 'kube-apiserver')
  return found as ControlPlaneOptions['ports']
}

/** Links the programs for users, so that users can add them to PATH. */
function linkTools(dir: string, binaries: BinaryPaths): void {
  mkdirSync(join(dir, 'bin'), { recursive: true })
  symlinkSync(binaries('kubectl'), join(dir, 'bin', 'kubectl'))
}

const MARKER = '.fairlead-cluster'

/**
 * Marks the folder as a cluster's. Throws if it contains other files, since starting a cluster removes its contents.
 */
function takeFolder(dir: string): void {
  mkdirSync(dir, { recursive: true, mode: 0o700 })
  const foreign = readdirSync(dir).filter((entry) => !entry.startsWith('.lock'))
  if (foreign.length > 0 && !existsSync(join(dir, MARKER))) {
    throw new Error(
      `${dir} holds files of others (${foreign[0]}), so no cluster is started there: name an empty folder`,
    )
  }
  writeFileSync(join(dir, MARKER), '')
}

/** Removes the files of an earlier cluster. */
function clearFolder(dir: string): void {
  for (const name of ['bin', 'etcd', 'nats', 'pki', 'pid', 'log', 'kubeconfig', 'kubectl-cache', 'audit-policy.json']) {
    rmSync(join(dir, name), { recursive: true, force: true })
  }
}
