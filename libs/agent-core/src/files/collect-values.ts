import { CloudlessError, type Clock, type StopSignal } from '@cloudless/base';
import type { GetReplicaFilesRequest, GetReplicaFilesResponse } from '@cloudless/api';

/**
 * The GetReplicaFiles call.
 * @throws kind `unavailable` without a session with a coordinator.
 */
export type FetchFiles = (
  request: GetReplicaFilesRequest,
  signal: AbortSignal,
) => AsyncIterable<GetReplicaFilesResponse>;

/** Time limit of the call, milliseconds. A restart with a local copy waits as long. */
const FETCH_TIMEOUT_MS = 10_000;

/**
 * Reads all responses, within {@link FETCH_TIMEOUT_MS}.
 * @param stops - Signals that end the call.
 */
export async function collectValues(
  fetch: FetchFiles,
  request: GetReplicaFilesRequest,
  stops: readonly StopSignal[],
  clock: Clock,
): Promise<readonly GetReplicaFilesResponse[]> {
  const call = new AbortController();
  let abort = (_reason: CloudlessError): void => undefined;
  const aborted = new Promise<never>((_resolve, reject) => {
    abort = (reason) => {
      call.abort(reason);
      reject(reason);
    };
  });
  const timer = clock.setTimer(FETCH_TIMEOUT_MS, () =>
    abort(new CloudlessError('unavailable', 'the coordinator did not answer in time')),
  );
  const onStop = (): void => abort(new CloudlessError('unavailable', 'the call was cancelled'));
  for (const stop of stops) stop.addEventListener('abort', onStop, { once: true });
  const readAll = async (): Promise<readonly GetReplicaFilesResponse[]> => {
    const responses: GetReplicaFilesResponse[] = [];
    for await (const response of fetch(request, call.signal)) responses.push(response);
    return responses;
  };
  try {
    return await Promise.race([readAll(), aborted]);
  } finally {
    timer.cancel();
    for (const stop of stops) stop.removeEventListener('abort', onStop);
  }
}
