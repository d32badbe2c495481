import { registryServer } from './registry-server.ts'

const [host = '', port = '', dir = ''] = process.argv.slice(2)
;(await registryServer(dir)).listen(Number(port), host)
