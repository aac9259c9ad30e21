import { connect } from 'node:http2';
import { isIPv6 } from 'node:net';
import type { ProbeClients } from '@cloudless/agent-core';
import { fromConnectError } from '@cloudless/api';
import {
  HealthCheckResponse_ServingStatus as Status,
  createHealthClient,
} from '@cloudless/api/grpc';
import { CloudlessError, errorCodeOf } from '@cloudless/base';
import { createGrpcTransportOver } from '@cloudless/rpc-node/client';
import { toConnectionError } from './connection-error.js';

/** Maximum size of the response, which is one small number. */
const MAX_ANSWER_BYTES = 4 * 1024;
/** Maximum length of the message of the server in an error, which is part of a report. */
const MAX_MESSAGE_CHARACTERS = 160;
/** Limit of causes that are searched, because causes can form a cycle. */
const MAX_CAUSES = 8;

/** Makes one `grpc.health.v1.Health/Check` over a new HTTP/2 connection without TLS. */
export const checkGrpc: ProbeClients['grpc'] = async ({ ip, port, service }, signal) => {
  const address = `http://${isIPv6(ip) ? `[${ip}]` : ip}:${port}`;
  const session = connect(address);
  session.on('error', () => undefined); // the call fails with the same error
  try {
    const { status } = await createHealthClient(
      createGrpcTransportOver(session, address, MAX_ANSWER_BYTES),
    ).check({ service }, { signal });
    return Status[status] ?? String(status);
  } catch (reason) {
    throw toCheckError(reason);
  } finally {
    if (signal.aborted) session.destroy();
    else session.close(); // a graceful close: a reset would be an error in the server
  }
};

/** Converts a failed call to an error whose message is the same for repeated failures. */
function toCheckError(reason: unknown): CloudlessError {
  const causes = listCauses(reason);
  const systemError = causes.find((cause) => /^E[A-Z]+$/.test(errorCodeOf(cause) ?? ''));
  if (systemError !== undefined) return toConnectionError(systemError);
  if (causes.some((cause) => errorCodeOf(cause) === 'ERR_HTTP2_ERROR')) {
    return new CloudlessError('unavailable', 'the server does not speak HTTP/2', { cause: reason });
  }
  const { kind, message } = fromConnectError(reason);
  return new CloudlessError(kind, `gRPC ${kind}: ${message.slice(0, MAX_MESSAGE_CHARACTERS)}`, {
    cause: reason,
  });
}

/** Lists an error and its causes, outermost first. */
function listCauses(reason: unknown): readonly unknown[] {
  const causes: unknown[] = [];
  let cause = reason;
  while (typeof cause === 'object' && cause !== null && causes.length < MAX_CAUSES) {
    causes.push(cause);
    cause = 'cause' in cause ? cause.cause : undefined;
  }
  return causes;
}
