/**
 * `node front.ts PORT`: a Service, as a process that delays no other. Each connection goes to one of the ports that its
 * parent has sent last; it answers each message when it holds.
 */
import { connect, createServer } from 'node:net'

let ports: readonly number[] = []
let next = 0

const server = createServer({ noDelay: true }, (client) => {
  client.on('error', () => client.destroy())
  const port = ports[next++ % ports.length]
  if (port === undefined) return void client.resetAndDestroy()
  const process = connect({ port, host: '127.0.0.1', noDelay: true })
  process.on('error', () => client.resetAndDestroy())
  client.once('close', () => process.destroy())
  client.pipe(process).pipe(client)
})
server.listen(Number(process.argv[2]), '127.0.0.1', () => process.send?.('listening'))
process.on('message', (to: readonly number[]) => {
  ports = to
  process.send?.('sent')
})
process.on('disconnect', () => process.exit())
