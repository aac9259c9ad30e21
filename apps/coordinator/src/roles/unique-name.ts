import { CloudlessError, type Clock, type Log } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';

/** The identity of the coordinator that starts. */
export interface CoordinatorFacts {
  readonly id: string;
  readonly address: string;
  readonly holder: string;
}

/**
 * Time for which a start waits for the record of another process with the same id, milliseconds: the
 * record of a process that has crashed disappears 10 s after its last renewal.
 */
export const PREDECESSOR_MS = 12_000;

/**
 * Resolves when no other process with the id of this coordinator runs. Two coordinators with one id
 * take each other's leadership for their own. A record with the address of this coordinator is that
 * of an earlier process, because two processes cannot serve one address.
 * @throws kind `precondition` when the other process still runs after {@link PREDECESSOR_MS}.
 */
export async function requireUniqueName(
  state: Pick<ClusterState, 'view' | 'subscribe' | 'onEnd'>,
  { clock, log }: { readonly clock: Clock; readonly log: Log },
  { id, address, holder }: CoordinatorFacts,
): Promise<void> {
  const findOther = () =>
    [...state.view().coordinators()].find(
      ({ value }) => value.id === id && value.holder !== holder && value.address !== address,
    )?.value;
  const other = findOther();
  if (other === undefined) return;
  log.info('waiting for the end of an earlier coordinator with the same name', {
    name: id,
    address: other.address,
    atMostMs: PREDECESSOR_MS,
  });
  await new Promise<void>((resolve, reject) => {
    const finish = (settle: () => void): void => {
      timer.cancel();
      for (const unsubscribe of unsubscribes) unsubscribe();
      settle();
    };
    const timer = clock.setTimer(PREDECESSOR_MS, () =>
      finish(() => reject(createDuplicateError(id, findOther()?.address ?? other.address))),
    );
    const unsubscribes = [
      state.subscribe(() => {
        if (findOther() === undefined) finish(resolve);
      }),
      state.onEnd((reason) => finish(() => reject(reason))),
    ];
  });
}

function createDuplicateError(id: string, address: string): CloudlessError {
  return new CloudlessError(
    'precondition',
    `another coordinator with the name "${id}" runs at ${address}; start this coordinator with a --name of its own, or stop the other one first`,
  );
}
