import { createRouterTransport } from '@connectrpc/connect';
import {
  AgentService,
  CoordinatorService,
  createAgentClient,
  createCoordinatorClient,
} from '../index.js';

it('creates clients that each call their own service', async () => {
  const id = 'a'.repeat(64);
  const transport = createRouterTransport(({ service }) => {
    service(CoordinatorService, { getWorkload: ({ name }) => ({ name, uid: 'u' }) });
    service(AgentService, { listContainers: () => ({ containers: [{ containerId: id }] }) });
  });
  expect(await createCoordinatorClient(transport).getWorkload({ name: 'web' })).toMatchObject({
    name: 'web',
    uid: 'u',
  });
  expect(await createAgentClient(transport).listContainers({})).toMatchObject({
    containers: [{ containerId: id }],
  });
});
