import type { ServiceImpl } from '@connectrpc/connect';
import { AdminService } from '@cloudless/api';
import type { AdminHandlers } from '../admin-handlers.js';
import type { CallRoutes } from './call-routes.js';

const calls = AdminService.method;

/** Creates the implementation of AdminService. */
export function createAdminRoutes(
  routes: CallRoutes,
  admin: AdminHandlers,
): ServiceImpl<typeof AdminService> {
  return {
    backup: (_request, context) =>
      routes.audit.wrapStream(calls.backup, context, (entry) => admin.backup(entry, context)),
    snapshot: (_request, context) => admin.snapshot(context),
    acceptRestoredState: routes.change(calls.acceptRestoredState, (_request, entry) =>
      admin.acceptRestoredState(entry),
    ),
    stepDown: routes.change(calls.stepDown, (request, entry) => admin.stepDown(request, entry)),
  };
}
