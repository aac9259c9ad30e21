import type { Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { findField } from '../../manifest/find-field.js';
import { formatField } from '../../views/field-view.js';
import { hasFlag } from '../options.js';

/**
 * Prints the documentation of a manifest field. Needs no coordinator.
 * @throws {@link CliFailure} with exit code 2 when there is no such field.
 */
export async function explainField(invocation: Invocation, path: string): Promise<void> {
  const { session } = invocation;
  const field = findField(path === 'manifest' ? '' : path);
  if ('problem' in field) throw createUsageFailure(field.problem);
  if (session.isStructured)
    throw createUsageFailure(
      'the documentation of a field has no JSON form; "cloudlessctl schema" prints the JSON Schema of all fields',
    );
  await session.print(
    formatField(field, session.io.stdout.columns, hasFlag(invocation, 'recursive'), session.style),
  );
}
