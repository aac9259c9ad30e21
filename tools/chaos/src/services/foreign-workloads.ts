import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Port_Protocol } from '@cloudless/api';
import { REQUEST_APP } from '@cloudless/e2e';
import { requireItem } from '../require-item.js';
import { POSTGRES, asNobody, makeDirectoryOfNobody } from './postgres.js';
import type { ServiceCluster, Spec } from './service-cluster.js';

/** A server that answers every HTTP/2 request with the id of its replica. */
const HTTP2_SERVER = `require('node:http2').createServer((request, response) =>
  response.end(process.env.CLOUDLESS_REPLICA_ID)).listen(process.env.PORT, '127.0.0.1');`;
/** A server that returns every datagram. */
const UDP_SERVER = `const socket = require('node:dgram').createSocket('udp4');
  socket.on('message', (text, { port, address }) => socket.send('echo ' + text, port, address));
  socket.bind(process.env.PORT, '127.0.0.1');`;

const QUICK = { minReadyDuration: durationFromMs(0) };

/** A workload that other programs use, and the port of its service. */
export interface ForeignWorkload {
  readonly port: number;
  readonly protocol: 'tcp' | 'udp';
  readonly spec: Spec;
}

const createForeign = (
  port: number,
  command: readonly string[],
  more: Spec = {},
  protocol: ForeignWorkload['protocol'] = 'tcp',
): ForeignWorkload => ({
  port,
  protocol,
  spec: {
    command: [...command],
    ports: [{ name: 'main', containerPort: port }],
    expose: [{ name: 'main', port }],
    rollout: QUICK,
    ...more,
  },
});

/**
 * Returns the workloads by the names of their services. Makes the data directory of PostgreSQL.
 * PostgreSQL runs on the first node and the other replicas on all nodes.
 */
export function prepareForeignWorkloads({
  world,
  servers,
}: ServiceCluster): Readonly<Record<string, ForeignWorkload>> {
  const data = join(world.directory, 'postgres');
  makeDirectoryOfNobody(data);
  const [program = '', ...args] = asNobody(POSTGRES.initdb, '-D', data);
  execFileSync(program, [...args, '-U', 'postgres', '-A', 'trust', '--no-sync'], {
    stdio: ['ignore', 'ignore', 'pipe'],
    cwd: '/',
  });
  const postgres = asNobody(POSTGRES.server, '-D', data, '-h', '127.0.0.1').join(' ');
  const first = requireItem(servers[0]).name;
  const udp = {
    ports: [{ name: 'main', containerPort: 7_000, protocol: Port_Protocol.UDP }],
    replicas: 2,
  };
  return {
    site: createForeign(80, REQUEST_APP, { replicas: 3, env: { VERSION: '1' } }),
    h2: createForeign(8_080, ['node', '-e', HTTP2_SERVER], { replicas: 3 }),
    iperf: createForeign(5_201, ['sh', '-c', 'exec iperf3 -s -p $PORT']),
    echo: createForeign(7_000, ['node', '-e', UDP_SERVER], udp, 'udp'),
    postgres: createForeign(5_432, ['sh', '-c', `exec ${postgres} -p $PORT -k ''`], {
      placement: { nodeSelector: { node: first } },
    }),
  };
}
