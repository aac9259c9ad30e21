// The DNS server of a node as a process of its own, for the benchmark `dns`. Ends with its parent.
import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
import { systemClock } from '@cloudless/app-kit';
import { silentLog } from '@cloudless/base';
import { DnsServer } from '@cloudless/mesh';
import { DnsZone, parseAddressRange } from '@cloudless/network';
import { BENCH_DOMAIN, benchServices } from './dns-names.js';

const range = parseAddressRange('10.96.0.0/16');
const zone = new DnsZone({ clusterDomain: BENCH_DOMAIN, range });
for (const { namespace, name, address } of benchServices()) {
  zone.setService({
    namespace,
    name,
    clusterIp: address,
    headless: false,
    externalName: '',
    ports: [{ name: 'http', port: 80, protocol: 'tcp' }],
  });
}
zone.markComplete();

const server = new DnsServer({
  zone: () => zone,
  range: () => range,
  resolvers: () => [],
  isLocalClient: () => true,
  clock: systemClock,
  log: silentLog,
});
const udp = createSocket('udp4');
udp.bind({ address: '127.0.0.1', port: 0 }, () => {
  const { port } = udp.address();
  const tcp = createServer({ allowHalfOpen: true, pauseOnConnect: true });
  server.serveUdp(udp);
  server.serveTcp(tcp);
  tcp.listen({ host: '127.0.0.1', port }, () => process.send?.({ port }));
});
process.on('disconnect', () => process.exit(0));
