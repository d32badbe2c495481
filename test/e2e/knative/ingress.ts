import { once } from 'node:events'
import { Agent, createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http'
import type { KubeObject } from '#contracts'
import { type KubeClient, resourcePath } from '#kube'
import { NODE_IP } from '../../../packages/lab/node/options.ts'

const INGRESSES = { group: 'networking.internal.knative.dev', version: 'v1alpha1', resource: 'ingresses' }
const SERVICES = { group: '', version: 'v1', resource: 'services' }

/** The part of Serving's ingress API that a cluster-local Service needs. */
interface KIngress extends KubeObject {
  spec: { rules: { hosts: string[]; http: { paths: { splits: Split[] }[] } }[] }
}
interface Split {
  serviceNamespace: string
  serviceName: string
  servicePort: number | string
  appendHeaders?: Record<string, string>
}
interface Service extends KubeObject {
  spec: { clusterIP: string; ports: { name: string; port: number }[] }
}

/**
 * Knative's ingress, on this machine: whoever asks for a host is led to the Service that Serving names for it, be that the
 * pods or the activator. Hosts only; no weights, paths, TLS or upgrades.
 */
export class Ingress {
  readonly #kube: KubeClient
  readonly #domain: string
  readonly #routes = new Map<string, Split>()
  readonly #end = new AbortController()
  readonly #server: Server
  // A kept connection would outlive what the Service leads to.
  readonly #agent = new Agent({ keepAlive: false })

  private constructor(kube: KubeClient, domain: string) {
    this.#kube = kube
    this.#domain = domain
    this.#server = createServer((request, response) => {
      this.#pass(request, response).catch((error: unknown) => response.writeHead(502).end(String(error)))
    })
  }

  /** `domain`: the name, in the cluster, of this ingress. */
  static async start(kube: KubeClient, domain: string): Promise<Ingress> {
    const ingress = new Ingress(kube, domain)
    ingress.#server.listen(0, NODE_IP)
    await once(ingress.#server, 'listening')
    return ingress
  }

  get port(): number {
    const address = this.#server.address()
    return typeof address === 'object' && address !== null ? address.port : 0
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end.abort()
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, 'close')
  }

  /** Follows the ingresses as soon as Serving has defined the kind. */
  async follow(): Promise<void> {
    const { signal } = this.#end
    while (!signal.aborted)
      try {
        for await (const event of this.#kube.watch<KIngress>(resourcePath(INGRESSES), { signal }))
          if (event.type !== 'BOOKMARK' && event.type !== 'DELETED') await this.#learn(event.object)
      } catch (error) {
        if (!signal.aborted) throw error
      }
  }

  async #learn({ metadata, spec }: KIngress): Promise<void> {
    for (const { hosts, http } of spec.rules) {
      const [split] = http.paths[0]?.splits ?? []
      if (split) for (const host of hosts) this.#routes.set(host, split)
    }
    const lastTransitionTime = new Date().toISOString()
    const conditions = ['LoadBalancerReady', 'NetworkConfigured', 'Ready'].map((type) => ({
      type,
      status: 'True',
      lastTransitionTime,
    }))
    const loadBalancer = { ingress: [{ domainInternal: this.#domain }] }
    const status = {
      observedGeneration: metadata.generation,
      conditions,
      publicLoadBalancer: loadBalancer,
      privateLoadBalancer: loadBalancer,
    }
    await this.#kube.patch(
      `${resourcePath(INGRESSES, metadata.namespace)}/${metadata.name}/status`,
      { status },
      'merge',
    )
  }

  async #pass(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const split = this.#routes.get(incoming.headers.host ?? '')
    if (split === undefined) return void response.writeHead(404).end()
    const service = await this.#kube.get<Service>(
      `${resourcePath(SERVICES, split.serviceNamespace)}/${split.serviceName}`,
    )
    const { clusterIP: host, ports } = service.spec
    const port = ports.find((one) => one.port === split.servicePort || one.name === split.servicePort)?.port
    const headers = { ...incoming.headers, ...split.appendHeaders }
    const outgoing = request({ agent: this.#agent, host, port, method: incoming.method, path: incoming.url, headers })
    outgoing.on('error', (error) =>
      response.headersSent ? response.destroy() : response.writeHead(502).end(error.message),
    )
    outgoing.on('response', (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(response)
    })
    incoming.pipe(outgoing)
  }
}
