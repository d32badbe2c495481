import './acts.js'
import './keys.js'
import { $ } from './dom.js'
import { follow } from './live.js'
import { virtual } from './rows.js'

const table = $('[data-rows]')
if (table) virtual(table)
void follow()
