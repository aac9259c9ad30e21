import { WorkloadSpecSchema } from '@cloudless/api';
import { MAX_REPLICAS } from '../quantity.js';
import { findField, listFields } from './find-field.js';
import type { ManifestField } from './find-field.js';

/** Returns the field at a path that exists. */
function field(path: string): ManifestField {
  const found = findField(path);
  if ('problem' in found) throw new Error(found.problem);
  return found;
}

describe('findField', () => {
  it.each([
    ['spec.replicas', `whole number, 0 to ${MAX_REPLICAS}`],
    ['spec.image', 'text'],
    ['spec.terminationGracePeriod', 'duration such as 500ms, 2s or 1h30m'],
    ['spec.resources.limits.cpuMillis', 'CPU such as 500m or 0.5'],
    ['spec.resources.limits.memoryBytes', 'size such as 64Mi or 1G'],
    ['spec.security.readOnlyRootFilesystem', 'true or false'],
    ['spec.restartedAt', 'time such as 2026-01-31T12:00:00Z'],
    ['spec.command', 'list of texts, at most 256'],
    ['spec.ports', 'list of maps, at most 64'],
    ['spec.env', 'map of names to texts, at most 1024'],
    ['spec.rollout', 'map'],
    ['spec.rollout.strategy', 'one of'],
  ])('describes the type of %s as %s', (path, type) => {
    expect(field(path)).toMatchObject({ path, type });
  });

  it('returns the comment of the API with field names as in manifests', () => {
    expect(field('spec.rollout.maxUnavailable').description).toBe(
      'Number of replicas that a rollout may stop at a time. Default: 0, which means one at a time as far as `minAvailable` allows.',
    );
  });

  it('returns the values of an enum with their descriptions', () => {
    expect(field('spec.rollout.onFailure').values).toEqual([
      { name: 'PAUSE', description: 'The rollout stays as it is.' },
      {
        name: 'ROLLBACK',
        description: 'The workload goes back to the version that was rolled out before.',
      },
    ]);
  });

  it.each(['spec.rollout.steps.wait', 'spec.rollout.steps[0].wait', 'spec.rollout.steps[].wait'])(
    'finds a field of the items of a list as %s',
    (path) => {
      expect(field(path).path).toBe('spec.rollout.steps.wait');
    },
  );

  it('accepts names in snake_case', () => {
    expect(field('spec.image_pull.policy').path).toBe('spec.imagePull.policy');
  });

  it.each([
    ['spec.rolout', 'spec has no field "rolout"; did you mean rollout?'],
    ['zzzzzz', 'a manifest has no field "zzzzzz"; known: kind, namespace, name, spec'],
    ['spec.zzzzzz', 'spec has no field "zzzzzz"; "cloudlessctl explain spec" lists the fields'],
    ['spec.replicas.count', 'spec.replicas has no fields of its own'],
    ['spec..image', 'spec has no field ""; "cloudlessctl explain spec" lists the fields'],
  ])('refuses the path %s', (path, problem) => {
    expect(findField(path)).toEqual({ problem });
  });

  it('knows every field of a spec', () => {
    expect(listFields('spec')).toEqual(
      WorkloadSpecSchema.fields.map(({ jsonName }) => `spec.${jsonName}`),
    );
  });

  it('describes every field at every level', () => {
    const check = ({ path, description, fields }: ManifestField): void => {
      expect(`${path}: ${description}`).toMatch(/: [A-Z0-9`]/);
      fields.forEach(check);
    };
    field('').fields.forEach(check);
  });
});
