#!/bin/sh
# A substitute for jdob/visitors-webui:1.0.0: a page that posts one visit when it is opened, and shows the latest ten.
set -eu
escape() { printf '%s' "$1" | sed 's/&/\&amp;/g; s/</\&lt;/g; s/"/\&quot;/g'; }
mkdir -p /tmp/www
cat > /tmp/www/index.html <<PAGE
<!doctype html>
<meta charset="utf-8">
<title>$(escape "${REACT_APP_TITLE:-Visitors Dashboard}")</title>
<body data-host="$(escape "${REACT_APP_BACKEND_HOST:-}")" data-port="$(escape "${REACT_APP_BACKEND_PORT:-30685}")">
<h2>$(escape "${REACT_APP_TITLE:-Visitors Dashboard}")</h2>
<table><thead><tr><th>Service IP<th>Client IP<th>Timestamp</tr></thead><tbody></tbody></table>
<script>
  const { host, port } = document.body.dataset
  const url = 'http://' + (host || location.hostname) + ':' + port + '/visitors/'
  const row = (visit) => {
    const cells = [visit.service_ip, visit.client_ip, visit.timestamp].map((text) => {
      const cell = document.createElement('td')
      cell.textContent = text
      return cell
    })
    const line = document.createElement('tr')
    line.append(...cells)
    return line
  }
  const show = async () => {
    const visits = await (await fetch(url)).json()
    document.querySelector('tbody').replaceChildren(...visits.map(row))
  }
  fetch(url, { method: 'POST' }).then(show)
  setInterval(show, 1000)
</script>
PAGE
exec httpd -f -p 3000 -h /tmp/www
