// Time that the main thread of a coordinator needs for reports when it decodes them itself, and when
// another thread does; time to hand commits over to a thread; CPU time of TLS for each message.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import * as http2 from 'node:http2';
import { fileURLToPath } from 'node:url';
import {
  MessageChannel,
  type Worker,
  receiveMessageOnPort,
  type MessagePort,
} from 'node:worker_threads';
import { create, toBinary } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { AgentMessageSchema, ReplicaStatus_Phase as Phase, decodeMessage } from '@cloudless/api';
import { startWorker, systemClock } from '@cloudless/app-kit';
import { printReport, summarise } from '../report.js';
import type { EchoFigures, EchoStart } from './echo-server.js';

/** Rounds of each measurement; the median counts, as others use the machine too. */
const ROUNDS = 200;
/** Reports in one round. */
const REPORTS = 600;
/** Puts in one commit: what commits of placements and of reports hold on average. */
const PUTS = 50;
/** Bytes of one put: key and record of a replica. */
const PUT_BYTES = 200;
/** Connections of agents, and messages on each, one after the other. */
const [CONNECTIONS, MESSAGES] = [50, 1_000];
/** Bytes of a report, and of an order, with their gRPC prefix. */
const [REPORT_BYTES, ORDER_BYTES] = [120, 165];

/** Median of times in milliseconds, as microseconds. */
const medianUs = (samples: readonly number[]): number =>
  summarise(samples.map((ms) => ms * 1_000)).median;

/** Encodes messages with `perMessage` reports each, {@link REPORTS} in all. */
function encodeReports(perMessage: number): readonly Uint8Array[] {
  const replicas = Array.from({ length: perMessage }, (_, index) => ({
    replicaId: `3f2a9c1d8e7b6a50-${index}`,
    workloadUid: '3f2a9c1d8e7b6a50',
    orderRevision: 123_456n,
    phase: Phase.RUNNING,
    ready: true,
    containerId: `process-3f2a9c1d8e7b6a50-${index}`,
    container: { pid: 4_242, startedAt: timestampFromMs(1_700_000_000_000), runtime: 'process' },
  }));
  const message =
    perMessage === 1
      ? create(AgentMessageSchema, { message: { case: 'report', value: replicas[0] ?? {} } })
      : create(AgentMessageSchema, { message: { case: 'inventory', value: { replicas } } });
  const bytes = toBinary(AgentMessageSchema, message);
  return Array.from({ length: REPORTS / perMessage }, () => bytes);
}

/** A thread that answers every message, and the count of its answers in shared memory. */
class Thread {
  private readonly answered = new Int32Array(new SharedArrayBuffer(4));
  private readonly port: MessagePort;
  private sent = 0;
  private readonly worker: Worker;

  constructor() {
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    this.worker = startWorker(import.meta.url, 'thread', {
      workerData: { port: port2, answered: this.answered },
      transferList: [port2],
    });
  }

  /** Resolves when the thread has loaded its code, which needs the event loop of this thread. */
  async ready(): Promise<void> {
    await once(this.worker, 'message');
  }

  /** Copies bytes, which share the memory of a socket's chunk, and hands the copy over. */
  send(kind: 'decode' | 'confirm', bytes: Uint8Array): void {
    const copy = bytes.slice();
    this.sent += 1;
    this.port.postMessage({ kind, bytes: copy }, [copy.buffer as ArrayBuffer]);
  }

  /** Blocks until the thread has answered everything. */
  wait(): void {
    for (;;) {
      const answered = Atomics.load(this.answered, 0);
      if (answered === this.sent) return;
      Atomics.wait(this.answered, 0, answered);
    }
  }

  /** Takes all answers. */
  receiveAll(): void {
    while (receiveMessageOnPort(this.port) !== undefined);
  }

  async close(): Promise<void> {
    this.port.close();
    await this.worker.terminate();
  }
}

/** Microseconds of the main thread for each report, decoded here and by the thread. */
function measureReports(thread: Thread, perMessage: number) {
  const messages = encodeReports(perMessage);
  const [here, beside]: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round += 1) {
    let startedAt = systemClock.now();
    for (const bytes of messages) decodeMessage(AgentMessageSchema, bytes);
    here.push(systemClock.now() - startedAt);
    startedAt = systemClock.now();
    for (const bytes of messages) thread.send('decode', bytes);
    const sentMs = systemClock.now() - startedAt;
    thread.wait();
    startedAt = systemClock.now();
    thread.receiveAll();
    beside.push(sentMs + systemClock.now() - startedAt);
  }
  const perReport = (samples: readonly number[]): number =>
    Math.round((medianUs(samples) * 100) / REPORTS) / 100;
  return { mainThreadUs: perReport(here), withThreadUs: perReport(beside) };
}

/** Microseconds of the main thread to hand a commit over and to take the confirmation. */
function measureCommits(thread: Thread) {
  const transaction = new Uint8Array(PUTS * PUT_BYTES);
  const samples: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const startedAt = systemClock.now();
    thread.send('confirm', transaction);
    const sentMs = systemClock.now() - startedAt;
    thread.wait();
    const receivedAt = systemClock.now();
    thread.receiveAll();
    samples.push(sentMs + systemClock.now() - receivedAt);
  }
  return { puts: PUTS, bytes: transaction.byteLength, withThreadUs: medianUs(samples) };
}

/** CPU time of a server for each report that it answers by an order, microseconds. */
async function measureConnections(url: string, readFigures: () => Promise<EchoFigures>) {
  const sessions = await Promise.all(
    Array.from({ length: CONNECTIONS }, async () => {
      const session = http2.connect(url, { rejectUnauthorized: false });
      await once(session, 'connect');
      return session;
    }),
  );
  const before = await readFigures();
  await Promise.all(
    sessions.map(async (session) => {
      const stream = session.request({ ':method': 'POST', ':path': '/' }, { endStream: false });
      const report = Buffer.alloc(REPORT_BYTES);
      for (let sent = 0; sent < MESSAGES; sent += 1) {
        stream.write(report);
        let received = 0;
        while (received < ORDER_BYTES) {
          const [chunk] = (await once(stream, 'data')) as [Buffer];
          received += chunk.length;
        }
      }
    }),
  );
  const after = await readFigures();
  for (const session of sessions) session.destroy();
  const cpuSeconds = after.cpuSeconds - before.cpuSeconds;
  return Math.round((cpuSeconds * 1e7) / (CONNECTIONS * MESSAGES)) / 10;
}

const thread = new Thread();
await thread.ready();
const reports = {
  oneInEachMessage: measureReports(thread, 1),
  of12InEachMessage: measureReports(thread, 12),
  of300InEachMessage: measureReports(thread, 300),
};
const commitHandOver = measureCommits(thread);
await thread.close();

const server = fork(
  fileURLToPath(new URL('echo-server.ts', import.meta.url)),
  [String(ORDER_BYTES)],
  {
    execArgv: ['--import', 'tsx', '--conditions=@cloudless/source'],
  },
);
const [{ plaintextUrl, secureUrl }] = (await once(server, 'message')) as [EchoStart];
const readFigures = async (): Promise<EchoFigures> => {
  const reply = once(server, 'message');
  server.send({});
  const [figures] = (await reply) as [EchoFigures];
  return figures;
};
const connections: Record<string, number[]> = { plaintext: [], tls: [] };
for (let round = 0; round < 3; round += 1) {
  connections['plaintext']?.push(await measureConnections(plaintextUrl, readFigures));
  connections['tls']?.push(await measureConnections(secureUrl, readFigures));
}
server.kill('SIGKILL');

printReport('threads', {
  unit: 'microseconds; of the main thread for reports and commits, of all threads for connections',
  reports,
  commitHandOver,
  serverCpuUsForReportAndOrder: connections,
});
