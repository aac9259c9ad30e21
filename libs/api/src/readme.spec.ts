import { readFile } from 'node:fs/promises';
import { create } from '@bufbuild/protobuf';
import { createRouterTransport } from '@connectrpc/connect';
import { CloudlessError } from '@cloudless/base';
import {
  CoordinatorService,
  WorkloadSpecSchema,
  checkSpec,
  createCoordinatorClient,
  createErrorInterceptor,
  createValidationInterceptor,
  diffSpecs,
  fromConnectError,
  updateSpec,
  type Workload,
} from './index.js';
import { aWorkload } from './testing/index.js';

/** Creates a transport to a fake coordinator with one workload, `web`, in memory. */
function createFakeTransport() {
  let web: Workload = aWorkload({ spec: { image: 'nginx:alpine', replicas: 2 } });
  return createRouterTransport(
    ({ service }) => {
      service(CoordinatorService, {
        createWorkload: ({ name }) => {
          throw new CloudlessError('exists', `workload default/${name} exists`);
        },
        getWorkload: () => web,
        updateWorkload: ({ spec, updateMask }) => {
          web = aWorkload({
            ...(spec && web.spec && { spec: updateSpec(web.spec, spec, updateMask?.paths) }),
          });
          return web;
        },
      });
    },
    {
      router: {
        interceptors: [createErrorInterceptor(() => undefined), createValidationInterceptor()],
      },
    },
  );
}

it('the example of the README runs against a fake coordinator', async () => {
  const transport = createFakeTransport();
  // <example>
  // transport: for example createGrpcTransport({ baseUrl: 'http://localhost:8080' })
  const client = createCoordinatorClient(transport);
  const spec = create(WorkloadSpecSchema, {
    image: 'nginx:alpine',
    replicas: 3,
    rollout: { maxSurge: 2 },
  });
  // throws InvalidInputError with the path of every violation, as the server does
  checkSpec(spec);

  const failure = await client.createWorkload({ name: 'web', spec }).catch(fromConnectError);
  expect(failure).toMatchObject({ kind: 'exists', message: 'workload default/web exists' });

  const { spec: present } = await client.getWorkload({ name: 'web' });
  expect(present && diffSpecs(present, spec)).toEqual([
    { path: 'replicas', before: 2, after: 3 },
    { path: 'rollout.max_surge', after: 2 },
  ]);
  const updated = await client.updateWorkload({
    name: 'web',
    spec,
    updateMask: { paths: ['rollout.max_surge'] },
  });
  // the replica count stays, because the mask does not contain it
  expect(updated.spec).toMatchObject({ replicas: 2, rollout: { maxSurge: 2 } });

  const refused = await client
    .updateWorkload({ name: 'web', spec: { replicas: -1 } })
    .catch(fromConnectError);
  expect(refused).toMatchObject({
    kind: 'invalid',
    message: 'spec.replicas: must be from 0 to 1000000',
  });
  // </example>
});

it('the README contains the code of the example in this spec', async () => {
  const text = await readFile(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const example =
    /\/\/ <example>\n([^]*?) *\/\/ <\/example>/u.exec(text)?.[1]?.replaceAll(/^ {2}/gmu, '') ??
    'no example';
  expect(await readFile(new URL('../README.md', import.meta.url), 'utf8')).toContain(example);
});
