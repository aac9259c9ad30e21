import { errorMessageOf, type Clock } from '@cloudless/base';
import type { CheckResult } from '@cloudless/network';
import type { CheckClients } from '../ports.js';
import type { CheckSettings } from './check-settings.js';

/** Longest reason of a failure, characters. A report takes 1024 bytes. */
const MAX_REASON_CHARACTERS = 200;

export interface AddressCheck {
  readonly ip: string;
  readonly port: number;
  readonly settings: Pick<CheckSettings, 'type' | 'path' | 'timeoutMs'>;
}

export interface AddressCheckDeps {
  readonly clients: CheckClients;
  readonly clock: Clock;
  /** Returns why an address is not connected to; undefined: it may be. */
  readonly explainRefused: (ip: string) => string | undefined;
}

/**
 * Makes one check, which ends after its timeout at the latest. Never rejects: failures are results.
 * @param stop - Aborts the check with its result.
 */
export async function checkAddress(
  { ip, port, settings }: AddressCheck,
  { clients, clock, explainRefused }: AddressCheckDeps,
  stop: AbortController,
): Promise<CheckResult> {
  const refusal = explainRefused(ip);
  if (refusal !== undefined) return fail(refusal);
  const { timeoutMs } = settings;
  return new Promise((resolve) => {
    const timer = clock.setTimer(timeoutMs, () => {
      resolve(fail(`no answer within ${timeoutMs} ms`));
      stop.abort();
    });
    request({ ip, port }, settings, clients, stop.signal)
      .catch((reason: unknown) => errorMessageOf(reason))
      .then((failure) => {
        timer.cancel();
        resolve(failure === undefined ? { kind: 'succeeded' } : fail(failure));
      })
      .catch(() => undefined);
  });
}

/** @returns Reason why the endpoint is not healthy; undefined when it is healthy. */
async function request(
  target: { readonly ip: string; readonly port: number },
  { type, path }: Pick<CheckSettings, 'type' | 'path'>,
  clients: CheckClients,
  signal: AbortSignal,
): Promise<string | undefined> {
  switch (type) {
    case 'tcp':
      await clients.tcp(target, signal);
      return undefined;
    case 'http': {
      const status = await clients.http({ ...target, path, headers: {} }, signal);
      return status >= 200 && status < 400 ? undefined : `HTTP ${status} from ${path}`;
    }
    case 'grpc': {
      const status = await clients.grpc({ ...target, service: '' }, signal);
      return status === 'SERVING' ? undefined : `gRPC health ${status}`;
    }
  }
}

function fail(reason: string): CheckResult {
  return { kind: 'failed', reason: reason.slice(0, MAX_REASON_CHARACTERS) };
}
