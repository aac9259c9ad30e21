import type { CliSession } from '../../call/cli-session.js';
import type { Invocation } from '../../command-tree.js';
import type { WorkloadName } from '../../names.js';
import { formatCount } from '../../output/human.js';
import { changeEach, type EachResult } from '../change-each.js';
import { hasFlag } from '../options.js';
import {
  formatName,
  getIfExists,
  isDeletion,
  type ChangedKind,
  type ObjectChange,
} from './object-change.js';

/**
 * Makes the changes of objects, one after the other, and prints a status line for each.
 * @param before - What the command has changed before, for the message about a failure:
 *   `1 workload`.
 * @returns The objects that the manifests describe, in their order.
 * @throws the error of the first change that fails; the changes after that are not made.
 */
export async function executeChanges<Wanted, Current>(
  session: CliSession,
  kind: ChangedKind<Wanted, Current>,
  changes: readonly ObjectChange<Wanted, Current>[],
  before: readonly string[] = [],
): Promise<readonly Current[]> {
  const objects: Current[] = [];
  let applied = 0;
  for (const [index, change] of changes.entries()) {
    try {
      if (isDeletion(change)) await deleteObject(session, kind, change);
      else if (change.action === 'NOTHING' && change.current !== undefined)
        objects.push(change.current);
      else {
        const object = await kind.put(session, change);
        objects.push(object);
        await kind.printStatus(session, object, change.action === 'CREATE' ? 'created' : 'updated');
      }
    } catch (reason) {
      const counts = [...before, ...(applied > 0 ? [formatCount(applied, kind.noun)] : [])];
      const others = changes.slice(index).filter(({ action }) => action !== 'NOTHING');
      if (counts.length > 0)
        await session.printNotice(
          `cloudlessctl: applied before the failure: ${counts.join(', ')}; not applied: ${others.map((other) => formatName(kind, other)).join(', ')}`,
        );
      throw reason;
    }
    if (change.action !== 'NOTHING') applied += 1;
  }
  return objects;
}

/** Deletes an object; one that is gone already counts as deleted. */
async function deleteObject<Wanted, Current>(
  session: CliSession,
  kind: ChangedKind<Wanted, Current>,
  { namespace, name }: WorkloadName,
): Promise<void> {
  const requestId = session.getRequestId(`${kind.noun}/${namespace}/${name}`);
  await getIfExists(kind.delete(session, { namespace, name }, requestId));
  await session.printStatus(`${formatName(kind, { namespace, name })}: deleted`);
}

/** Deletes the objects that manifests name. With `--ignore-not-found`, each may be missing. */
export function deleteNamed<Wanted, Current>(
  invocation: Invocation,
  kind: ChangedKind<Wanted, Current>,
  names: readonly WorkloadName[],
): Promise<EachResult<void>> {
  const { session } = invocation;
  return changeEach(session, names, {
    describe: (name) => formatName(kind, name),
    change: async ({ namespace, name }) => {
      const requestId = session.getRequestId(`${kind.noun}/${namespace}/${name}`);
      const deletion = kind.delete(session, { namespace, name }, requestId);
      const isGone = hasFlag(invocation, 'ignoreNotFound')
        ? (await getIfExists(deletion)) === undefined
        : (await deletion) === undefined;
      await session.printStatus(
        `${formatName(kind, { namespace, name })}: ${isGone ? 'not found' : 'deleted'}`,
      );
    },
  });
}
