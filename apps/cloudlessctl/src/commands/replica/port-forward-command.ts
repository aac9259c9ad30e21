import type { Command } from 'commander';
import { create } from '@bufbuild/protobuf';
import { ConnectError } from '@connectrpc/connect';
import { PortForwardRequestSchema, Port_Protocol, resolvePortName } from '@cloudless/api';
import type { PortForwardRequest } from '@cloudless/api';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { describeCallFailure, isServerReset } from '../../call/call-failure.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import { addNotes } from '../../help/help-format.js';
import type { LocalConnection, LocalListener } from '../../io/io.js';
import { toTargetFields } from '../../names.js';
import type { ReplicaTarget } from '../../names.js';
import { formatSpan } from '../../output/human.js';
import type { CliSession } from '../../call/cli-session.js';
import { Deadline } from '../../call/reconnect.js';
import { requireOperand } from '../options.js';
import { resolveReplicaTarget } from './resolve-target.js';

/**
 * Bytes of data in one message. The API allows 256 KiB in the `data` field; smaller messages reach
 * the replica earlier.
 */
const CHUNK_BYTES = 64 * 1024;

/** A local port and the port of the replica that it is forwarded to. */
interface Forwarding {
  /** Port on 127.0.0.1. 0: the system chooses a free port. */
  readonly local: number;
  /** Name or number of a TCP port that the workload declares. */
  readonly port: string;
}

/** Adds `port-forward`. */
export function addPortForwardCommand(tree: CommandTree, parent: Command): void {
  const command = tree.addCommand(
    parent,
    'port-forward <target> <ports...>',
    'forward local ports to a workload, replica or container',
    forwardPorts,
  );
  addNotes(
    command,
    'Ports are [LOCAL:]PORT. PORT is the name or number of a declared port, LOCAL is a port of this machine. Without LOCAL, or with 0, the system chooses a free port. Each connection to a workload goes to one of its ready replicas.',
  );
}

/**
 * Forwards connections until Ctrl-C or `--timeout`. An error of one connection is printed and ends
 * only that connection.
 * @throws {@link CliFailure} when a port is not declared or a local port is in use, and with exit
 *   code 6 when `--timeout` expires.
 */
async function forwardPorts(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const { io, settings } = session;
  const targetText = requireOperand(invocation, 0, 'target');
  const forwardings = operands.slice(1).map(parseForwarding);
  const target = await resolveReplicaTarget(session, targetText);
  await checkPorts(session, target, forwardings);
  const deadline = new Deadline(io.clock, io.signal, settings.timeoutMs);
  const listeners: LocalListener[] = [];
  try {
    for (const { local, port } of forwardings) {
      const listener = await listenOn(
        session,
        local,
        (connection) => void forwardConnection(session, target, port, connection, deadline.signal),
      );
      listeners.push(listener);
      await session.print(`Forwarding 127.0.0.1:${listener.port} -> ${targetText} ${port}\n`);
    }
    await waitUntilAborted(deadline.signal);
    if (deadline.hasExpired)
      throw new CliFailure(
        ExitCode.timeout,
        `stopped forwarding: --timeout expired after ${formatSpan(settings.timeoutMs ?? 0)}`,
      );
  } finally {
    deadline.cancel();
    for (const listener of listeners) listener.close();
  }
}

/** Parses `[LOCAL:]PORT`. */
function parseForwarding(text: string): Forwarding {
  const parts = text.split(':');
  const [local = '', port = ''] = parts.length === 1 ? ['0', text] : parts;
  if (
    parts.length > 2 ||
    !/^\d{0,5}$/.test(local) ||
    Number(local) > 65_535 ||
    !/^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(port)
  ) {
    throw createUsageFailure(
      `expected [LOCAL:]PORT, such as 8080:http, 8080:80 or http, got ${JSON.stringify(text)}`,
    );
  }
  return { local: Number(local), port };
}

/**
 * Checks that the workload declares the ports, because otherwise every single connection would
 * fail.
 */
async function checkPorts(
  session: CliSession,
  target: ReplicaTarget,
  forwardings: readonly Forwarding[],
): Promise<void> {
  if (target.kind !== 'workload') return;
  const { spec } = await session.client.getWorkload(target.workload, session.getCallOptions());
  const ports = (spec?.ports ?? []).filter(({ protocol }) => protocol === Port_Protocol.TCP);
  for (const { port } of forwardings) {
    if (ports.some((each) => resolvePortName(each) === port || String(each.containerPort) === port))
      continue;
    const declared = ports
      .map((each) => `${resolvePortName(each)} (${each.containerPort})`)
      .join(', ');
    throw createUsageFailure(
      `the workload declares no TCP port ${port}; ${declared === '' ? 'it has none' : `it has ${declared}`}`,
    );
  }
}

async function listenOn(
  { io }: CliSession,
  local: number,
  onConnection: (connection: LocalConnection) => void,
): Promise<LocalListener> {
  try {
    return await io.listen(local, onConnection);
  } catch (reason) {
    const code = reason instanceof Error && 'code' in reason ? String(reason.code) : String(reason);
    const problem =
      code === 'EADDRINUSE'
        ? 'the port is in use; choose another port, or omit LOCAL to use a free port'
        : code;
    throw new CliFailure(ExitCode.error, `cannot listen on 127.0.0.1:${local}: ${problem}`, {
      cause: reason,
    });
  }
}

/** Forwards one connection until both sides have ended. Prints an error instead of throwing it. */
async function forwardConnection(
  session: CliSession,
  target: ReplicaTarget,
  port: string,
  connection: LocalConnection,
  signal: AbortSignal,
): Promise<void> {
  const endSignal = AbortSignal.any([signal, connection.closed]);
  try {
    const requests = createRequests(target, port, connection);
    for await (const { response } of session.client.portForward(
      requests,
      session.getStreamOptions(endSignal),
    )) {
      if (response.case === 'data') await connection.write(response.value);
      else if (response.case === 'end') connection.endSending();
    }
    connection.endSending();
  } catch (reason) {
    connection.resetConnection();
    if (endSignal.aborted) return; // the local client has closed the connection
    await session.printNotice(
      `cloudlessctl: connection to port ${port}: ${describeBreak(session, reason)}`,
    );
  }
}

/** Describes why a forwarded connection broke. */
function describeBreak(session: CliSession, reason: unknown): string {
  if (isServerReset(reason)) return 'the connection to the coordinator was lost';
  const failure =
    reason instanceof ConnectError
      ? describeCallFailure(reason, session.settings, session.nowMs)
      : reason;
  return failure instanceof Error ? failure.message : String(failure);
}

/** Yields the start message, the data of the local client, and the end of that data. */
async function* createRequests(
  target: ReplicaTarget,
  port: string,
  connection: LocalConnection,
): AsyncGenerator<PortForwardRequest> {
  yield create(PortForwardRequestSchema, {
    request: { case: 'start', value: { ...toTargetFields(target), port } },
  });
  for await (const chunk of connection.received) {
    for (let start = 0; start < chunk.length; start += CHUNK_BYTES) {
      const value = new Uint8Array(chunk.subarray(start, start + CHUNK_BYTES));
      yield create(PortForwardRequestSchema, { request: { case: 'data', value } });
    }
  }
  yield create(PortForwardRequestSchema, { request: { case: 'end', value: {} } });
}

function waitUntilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
