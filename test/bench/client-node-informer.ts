/** The informer of @kubernetes/client-node, doing nothing; speaks as informer/main.go does. */
import { createInterface } from 'node:readline'
import { CoreV1Api, KubeConfig, makeInformer } from '@kubernetes/client-node'

const began = performance.now()
const config = new KubeConfig()
config.loadFromFile(process.env['KUBECONFIG'] ?? '')
const api = config.makeApiClient(CoreV1Api)
let delays: number[] = []
let objects = 0
const informer = makeInformer(config, '/api/v1/configmaps', () => api.listConfigMapForAllNamespaces())
informer.on('add', () => objects++)
informer.on('update', ({ metadata }) => {
  const sent = Number(metadata?.annotations?.['bench/sent'])
  if (sent > 0) delays.push(performance.timeOrigin + performance.now() - sent)
})
informer.on('error', () => setTimeout(() => void informer.start(), 1000))
await informer.start()
console.log(JSON.stringify({ syncedMs: Math.round(performance.now() - began), objects }))
for await (const _ of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify({ delays }))
  delays = []
}
