/** Tasks and their schedules. The event `changed` names `tasks` whenever one gets on. */

import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { get, post, postTo, put, type QueryOf } from "./client";
import { invalidated, useGet } from "./queries";
import type { SetSchedule, StartTask, TaskKind } from "./schema";

/** Tasks, newest first, page by page. */
export const useTasks = (query: QueryOf<"/tasks">) =>
  useInfiniteQuery({
    queryKey: ["tasks", query],
    queryFn: ({ pageParam, signal }) => get("/tasks", { query: { ...query, page_size: 50, page_token: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token ?? undefined,
  });

/** One task with its whole log. */
export const useTask = (id: string) =>
  useQuery({ queryKey: ["task", id], queryFn: ({ signal }) => get("/tasks/{id}", { params: { id }, signal }) });

export const useSchedules = () => useGet("schedules", "/schedules");

export function useStartTask() {
  const client = useQueryClient();
  return useMutation({ mutationFn: (task: StartTask) => post("/tasks", task), onSuccess: () => invalidated(client, ["tasks"]) });
}

export type Steering = "pause" | "resume" | "cancel";

/** Pauses, resumes or cancels a task. */
export function useSteer(id: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (how: Steering) => postTo(`/tasks/{id}/${how}`, { id }, undefined),
    onSuccess: () => invalidated(client, ["tasks"]),
  });
}

export function useSetSchedule(kind: TaskKind) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (schedule: SetSchedule) => put("/schedules/{kind}", { kind }, schedule),
    onSuccess: () => invalidated(client, ["tasks"]),
  });
}
