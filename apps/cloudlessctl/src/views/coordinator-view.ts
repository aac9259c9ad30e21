import type { KnownCoordinator } from '@cloudless/api';
import { formatAge } from '../output/human.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';

/** A coordinator with its role. */
export interface ListedCoordinator {
  readonly coordinator: KnownCoordinator;
  readonly role: 'leader' | 'follower';
  /** Number of the leadership; undefined for a follower. */
  readonly epoch?: bigint;
}

/** Formats coordinators as a table. */
export function formatCoordinatorTable(
  coordinators: readonly ListedCoordinator[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    [
      'NAME',
      'ROLE',
      { header: 'EPOCH', dropOrder: 1 },
      'ADDRESS',
      { header: 'VERSION', dropOrder: 2 },
      { header: 'AGE', dropOrder: 3 },
    ],
    coordinators.map(({ coordinator: { id, address, version, startedAt }, role, epoch }) => [
      id,
      role,
      epoch === undefined ? '-' : String(epoch),
      address,
      version === '' ? '-' : version,
      formatAge(startedAt, nowMs),
    ]),
    style,
    { wide },
  );
}
